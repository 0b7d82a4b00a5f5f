"""Which GPUShare governs a pod: the index finds the same shares as a check of each share."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orion.crds import governing
from orion.crds.governing import Shares
from orion.crds.selectors import LabelSelector, Matcher
from orion.crds.share import GPUShare
from tests.crds.plain_rule import oldest, selects

NAMES = ("a", "b", "c", "d")
TIMES = ("2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z")
LABELS = st.dictionaries(st.sampled_from(["app", "tier"]), st.sampled_from(["x", "y"]), max_size=2)
EXPRESSIONS = st.lists(
    st.one_of(
        st.builds(
            lambda key, how: {"key": key, "operator": how},
            st.sampled_from(["app", "tier"]),
            st.sampled_from(["Exists", "DoesNotExist"]),
        ),
        st.builds(
            lambda key, how, values: {"key": key, "operator": how, "values": values},
            st.sampled_from(["app", "tier"]),
            st.sampled_from(["In", "NotIn"]),
            st.lists(st.sampled_from(["x", "y"]), min_size=1, max_size=2, unique=True),
        ),
    ),
    max_size=2,
)


@st.composite
def shares(draw: st.DrawFn) -> list[GPUShare]:
    found = []
    for name in draw(st.permutations(NAMES))[: draw(st.integers(0, len(NAMES)))]:
        spec: dict[str, Any] = {"priority": "be"}
        if draw(st.booleans()):
            spec["selector"] = {"matchLabels": draw(LABELS), "matchExpressions": draw(EXPRESSIONS)}
        meta = {"name": name, "namespace": "n", "creationTimestamp": draw(st.sampled_from(TIMES))}
        found.append(GPUShare.read({"metadata": meta, "spec": spec}, "GPUShare"))
    return found


@given(shares(), LABELS)
def test_all_shares_that_select_a_pod_claim_it_if_it_names_no_share(
    given_shares: list[GPUShare], labels: dict[str, str]
) -> None:
    selecting = [each for each in given_shares if selects(each, labels)]
    in_order = sorted(selecting, key=lambda share: share.metadata.name)
    assert Shares(given_shares).claiming(None, labels) == in_order


@given(shares(), LABELS, st.sampled_from(NAMES))
def test_only_the_named_share_claims_a_pod_whatever_others_select(
    given_shares: list[GPUShare], labels: dict[str, str], name: str
) -> None:
    assert Shares(given_shares).claiming(name, labels) == [each for each in given_shares if each.metadata.name == name]


@given(shares())
def test_the_index_yields_all_shares(given_shares: list[GPUShare]) -> None:
    assert list(Shares(given_shares)) == given_shares


@given(shares(), st.lists(st.sampled_from(NAMES)), st.integers(1, 4))
def test_the_oldest_shares_govern_while_shares_come_and_go(
    given_shares: list[GPUShare], gone: list[str], most: int
) -> None:
    found, left = Shares(most=most), dict[str, GPUShare]()
    governing: set[str] = set()

    def follow(changed: set[str], written: str) -> None:
        expected = {share.metadata.name for share in oldest(left.values(), most)}
        assert {name for name in NAMES if found.governs(name)} == expected
        assert {name for name in NAMES if found.is_beyond(name)} == left.keys() - expected
        assert changed - {written} == (governing ^ expected) - {written}
        governing.clear()
        governing.update(expected)

    for share in given_shares:
        left[share.metadata.name] = share
        follow(found.put(share), share.metadata.name)
    for name in gone:
        left.pop(name, None)
        follow(found.drop(name), name)
    for share in given_shares:
        left[share.metadata.name] = share
        follow(found.put(share), share.metadata.name)
    assert names_of(found) == names_of(left.values())


@given(shares(), st.integers(1, 4), LABELS)
def test_the_oldest_of_the_first_shares_govern(given_shares: list[GPUShare], most: int, labels: dict[str, str]) -> None:
    found, governing = Shares(given_shares, most), oldest(given_shares, most)
    assert {name for name in NAMES if found.governs(name)} == names_of(governing)
    assert names_of(found.claiming(None, labels)) == {each.metadata.name for each in governing if selects(each, labels)}
    assert names_of(found) == names_of(given_shares)


def test_the_first_shares_beyond_the_bound_cost_no_selector(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[LabelSelector] = []

    def counted(selector: LabelSelector) -> Matcher:
        made.append(selector)
        return Matcher(selector)

    monkeypatch.setattr(governing, "Matcher", counted)
    spec = {"priority": "be", "selector": {"matchLabels": {"app": "x"}}}
    metas = ({"name": f"s{each}", "creationTimestamp": f"2026-01-01T00:00:{59 - each}Z"} for each in range(40))
    Shares((GPUShare.read({"metadata": meta, "spec": spec}, "GPUShare") for meta in metas), most=2)
    assert len(made) == 2


def names_of(shares: Iterable[GPUShare]) -> set[str]:
    return {share.metadata.name for share in shares}
