"""Which GPUShare governs a pod: the index finds the same shares as a check of each share."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from orion.crds.governing import Shares
from orion.crds.share import GPUShare

NAMES = ("a", "b", "c", "d")
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
        found.append(GPUShare.read({"metadata": {"name": name, "namespace": "n"}, "spec": spec}, "GPUShare"))
    return found


@given(shares(), LABELS)
def test_all_shares_that_select_a_pod_claim_it_if_it_names_no_share(
    given_shares: list[GPUShare], labels: dict[str, str]
) -> None:
    selecting = [each for each in given_shares if each.spec.selector is not None and each.spec.selector.matches(labels)]
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
