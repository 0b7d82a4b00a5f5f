"""The rows of the policy table: what users set, what a grant says and what the page stores agree."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orion.hook.policy_table import BENCH, RELEASE, Row, Unit

ROWS = {row.name: row for row in BENCH.all_rows}
REQUEST = ROWS["request"]


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_the_edges_and_the_default_are_valid_in_the_page_and_return_unchanged(row: Row) -> None:
    least, most = row.page_bounds
    assert least < most
    assert {row.to_page(row.least), row.to_page(row.most)} == {least, most}
    for value in (row.least, row.default, row.most):
        assert least <= row.to_page(value) <= most
        assert row.from_page(row.to_page(value)) == value


@given(row=st.sampled_from(RELEASE.rows), value=st.integers(0, 200_000))
def test_any_value_of_a_grant_is_valid_in_the_page(row: Row, value: int) -> None:
    word = row.from_grant(value)
    assert row.page_bounds[0] <= word <= row.page_bounds[1]
    asked = value / 1_000 if row.unit is Unit.RATIO else value
    if row.least <= asked <= row.most:
        assert word == row.to_page(asked)


@given(st.integers(500, 1_000))
def test_the_page_stores_what_the_request_of_hp_leaves_to_be(milli: int) -> None:
    word = REQUEST.to_page(milli / 1_000)
    assert (REQUEST.word, word) == ("minimum_share_milli", 1_000 - milli)
    assert REQUEST.from_page(word) == milli / 1_000
    assert (REQUEST.granted, REQUEST.from_grant(milli)) == ("request_milli", word)


def test_without_a_request_of_hp_be_has_no_floor() -> None:
    assert REQUEST.to_page(REQUEST.default) == 0
    assert REQUEST.page_bounds == (0, 500)
