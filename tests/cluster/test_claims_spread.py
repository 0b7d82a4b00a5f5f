"""Pods with claims spread over GPUs and nodes, by the real scheduler: it needs slices and templates, and no kubelet."""

from collections.abc import Callable

import pytest

from tests.cluster.claiming_cluster import HP, Cluster, be, gpu
from tests.waiting import eventually

pytestmark = pytest.mark.cluster


def burst(cluster: Cluster) -> None:
    cluster.place(be(), 16)


def one_by_one(cluster: Cluster) -> None:
    for _ in range(16):
        cluster.place(be())


@pytest.mark.parametrize(("come", "most"), [(burst, 2), (one_by_one, 1)])
def test_sixteen_pods_on_two_nodes_spread_over_gpus_and_nodes(
    cluster: Cluster, come: Callable[[Cluster], None], most: int
) -> None:
    """In a burst kube-scheduler takes a GPU for full for a moment while it writes a claim (docs/dra.md)."""
    nodes = [cluster.node(name, *map(gpu, range(4))) for name in ("a", "b")]
    come(cluster)
    tenants = cluster.tenants()
    of_nodes = {node: [tenants[node, gpu(number).uuid.lower()] for number in range(4)] for node in nodes}
    assert all(max(counts) - min(counts) <= most for counts in of_nodes.values()), of_nodes
    assert abs(sum(of_nodes[nodes[0]]) - sum(of_nodes[nodes[1]])) <= 2, of_nodes


def test_pods_that_ask_for_no_place_get_the_first_gpu_that_fits(cluster: Cluster) -> None:
    """Once Kubernetes spreads claims by itself, places are no longer needed. In a burst a pod may find a GPU full."""
    node = cluster.node("a", *map(gpu, range(4)))
    for _ in range(8):
        cluster.place(be(places=None))
    assert cluster.tenants() == {(node, gpu(0).uuid.lower()): 8}


def test_more_tenants_than_places_use_all_slots(cluster: Cluster) -> None:
    cluster.node("a", gpu(0), gpu(1, be=2))
    cluster.place(be(), 10)
    assert sorted(cluster.tenants().values()) == [2, 8]


def test_hp_and_be_avoid_each_other_while_a_gpu_is_empty(cluster: Cluster) -> None:
    cluster.node("a", *map(gpu, range(4)))
    cluster.place(be(), 2)
    cluster.place(HP, 2)
    assert sorted(cluster.tenants().values()) == [1, 1, 1, 1]
    cluster.place(HP, 2)
    cluster.place(be(), 2)
    assert sorted(cluster.tenants().values()) == [2, 2, 2, 2]


def test_pods_with_several_gpus_get_different_ones(cluster: Cluster) -> None:
    cluster.node("a", *map(gpu, range(4)))
    cluster.place(be())
    (pair,) = cluster.place(be(3))
    assert len(set(cluster.placed()[pair])) == 3
    assert sorted(cluster.tenants().values()) == [1, 1, 1, 1]
    (four,) = cluster.place(be(4))
    assert len(set(cluster.placed()[four])) == 4


def test_gpus_in_common_hold_for_whatever_alternative_is_chosen(cluster: Cluster) -> None:
    linked = {number: frozenset({gpu(other).uuid}) for number, other in ((0, 1), (1, 0), (2, 3), (3, 2))}
    cluster.node("a", *(gpu(number, linked=linked[number]) for number in range(4)))
    cluster.place(be())
    cluster.place(be(2, in_common="orion.gpu/nvlink"), 2)
    pairs = [gpus for gpus in cluster.placed().values() if len(gpus) == 2]
    numbers = sorted(sorted(int(device[11]) for _, device in gpus) for gpus in pairs)
    assert numbers == [[0, 1], [2, 3]]


def test_a_quota_counts_the_alternatives_of_a_pod_once(cluster: Cluster) -> None:
    cluster.node("a", gpu(0), gpu(1))
    used = cluster.quota(3)
    eventually(lambda: used() == "0", "the quota counts")
    cluster.place(be(2))
    cluster.place(be())
    eventually(lambda: used() == "3", "all GPUs of the pods count, and none of their alternatives")


def test_a_pod_takes_the_place_of_the_first_that_left(cluster: Cluster) -> None:
    """What docs/dra.md says about pods that leave: a place is no count."""
    cluster.node("a", gpu(0), gpu(1))
    first, second, *_ = [cluster.place(be())[0] for _ in range(6)]
    (left,) = cluster.placed()[first]
    cluster.end(first)
    (after,) = cluster.place(be())
    assert cluster.placed()[after] == [left]
    assert cluster.placed()[second] != [left]


def test_a_gpu_whose_memory_is_configured_down_keeps_its_pods_and_gets_no_more(cluster: Cluster) -> None:
    node, large = cluster.node("a", gpu(0)), be(memory_bytes=60 << 30)
    (holder,) = cluster.place(large)
    cluster.keep_memory(node, 5 << 30, gpu(0))  # 9 slots leave 35 of 80 GiB
    (waiting,) = cluster.begin(be(memory_bytes=1 << 30))
    eventually(lambda: cluster.why_pending(waiting), "the scheduler has tried")
    assert list(cluster.placed()) == [holder]
    cluster.end(holder)
    eventually(lambda: list(cluster.placed()) == [waiting], "what is left is enough for the small one")
