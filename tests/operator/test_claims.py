"""Which shares claim which pods: the index gives what the plain rule gives, whatever comes, changes and goes."""

from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from orion.crds.share import GPUShare
from orion.operator.reconciler.claims import Claims
from tests.crds.plain_rule import claiming
from tests.crds.test_governing import LABELS, shares

PODS = ("p", "q", "r", "s", "t")
NAMES = ("a", "b", "c", "d")
POD_CHANGES = st.tuples(
    st.sampled_from(PODS),
    st.one_of(st.none(), st.tuples(st.one_of(st.none(), st.sampled_from(NAMES)), LABELS)),
)
""" A pod, and the share that it names with its labels; None: the pod goes. """
SHARE_CHANGES = shares().map(lambda found: found[0] if found else None)


class World:
    """The claims of a namespace, and what the plain rule needs."""

    def __init__(self, most: int) -> None:
        self.most, self.claims = most, Claims(most)
        self.pods: dict[str, tuple[str | None, dict[str, str]]] = {}
        self.shares: dict[str, GPUShare] = {}

    def expected(self) -> dict[str, list[str]]:
        return {pod: claiming(self.shares.values(), self.most, *given) for pod, given in self.pods.items()}

    def found(self) -> dict[str, list[str]]:
        return {pod: self.claims.of(pod) for pod in self.pods}

    def move(self, pod: str, to: tuple[str | None, dict[str, str]] | None) -> None:
        if to is None:
            self.pods.pop(pod, None)
            self.claims.drop_pod(pod)
        else:
            self.pods[pod] = to
            self.claims.put_pod(pod, *to)

    def change(self, name: str, share: GPUShare | None) -> Iterator[str | None]:
        if share is None:
            self.shares.pop(name, None)
        else:
            self.shares[name] = share
        return self.claims.compare(self.claims.change(name, share))


@given(
    st.integers(1, 4),
    st.lists(POD_CHANGES, max_size=8),
    st.lists(st.tuples(st.sampled_from(NAMES), SHARE_CHANGES, st.lists(POD_CHANGES, max_size=3)), max_size=8),
)
def test_the_index_agrees_with_the_plain_rule_after_every_change(
    most: int, pods: list[Any], changes: list[tuple[str, GPUShare | None, list[Any]]]
) -> None:
    world = World(most)
    for pod in pods:
        world.move(*pod)
    for name, share, meanwhile in changes:
        waiting = list(meanwhile)
        before = world.found()
        named = share.metadata.name if share is not None else name
        reported = set()
        for pod in world.change(named, share):
            reported.add(pod)
            if waiting:
                world.move(*waiting.pop())
        for pod in waiting:
            world.move(*pod)
        after = world.found()
        assert after == world.expected()
        touched = {pod for pod, _ in meanwhile}
        unreported = before.keys() & after.keys() - reported - touched
        assert {pod: before[pod] for pod in unreported} == {pod: after[pod] for pod in unreported}


def test_a_change_compares_only_pods_that_have_a_required_label() -> None:
    world = World(9)
    for number in range(100):
        world.move(f"p{number}", (None, {"app": f"a{number % 10}", "tier": "x"}))
    expressions = [{"key": "app", "operator": "In", "values": ["a1", "a2"]}]
    selector = {"matchLabels": {"tier": "x"}, "matchExpressions": expressions}
    assert len(list(world.change("s", read_share("s", selector)))) == 20
    assert len(list(world.change("s", read_share("s", {"matchLabels": {"app": "a3"}})))) == 30  # before, or now
    assert len(list(world.change("s", None))) == 10
    assert (
        len(list(world.change("t", read_share("t", {"matchExpressions": [{"key": "app", "operator": "Exists"}]}))))
        == 100
    )


def test_pods_that_mention_a_share_are_reported() -> None:
    claims = Claims()
    claims.put_pod("named", "s", {})
    claims.put_pod("granted", None, {}, pin="s")
    claims.put_pod("other", None, {})
    assert set(claims.compare(claims.change("s", read_share("s", None)))) == {"named", "granted"}


def read_share(name: str, selector: dict[str, Any] | None) -> GPUShare:
    spec = {"priority": "be"} | ({"selector": selector} if selector is not None else {})
    return GPUShare.read({"metadata": {"name": name, "namespace": "n"}, "spec": spec}, "GPUShare")
