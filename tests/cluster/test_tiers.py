"""`make test` runs every test: a test with any marks is in a tier. Tests that measure time have their own tier."""

import itertools

import pytest
from _pytest.mark.expression import Expression

from tools.tiers import run as tiers

MARKS = ("quiet", "cluster", "neighbours", "node")


def tiers_of(marks: set[str]) -> set[str]:
    """Return the tiers whose expression selects a test with these marks."""

    def has(name: str, /, **_: str | int | bool | None) -> bool:
        return name in marks

    return {name for name, tier in tiers.TIERS.items() if Expression.compile(tier.marks).evaluate(has)}


@pytest.mark.parametrize("number", range(len(MARKS) + 1))
def test_every_test_is_in_a_tier(number: int) -> None:
    for marks in itertools.combinations(MARKS, number):
        assert tiers_of(set(marks)), marks


def test_a_test_without_a_cluster_mark_is_in_at_most_one_tier() -> None:
    assert tiers_of(set()) == {"host"}
    assert tiers_of({"quiet"}) == {"quiet"}
    assert tiers_of({"gpu"}) == tiers_of({"gpu", "quiet"}) == set()
