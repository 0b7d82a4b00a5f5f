"""How many grants the operator keeps: jobs come and go, and each may name its containers in its own way."""

from types import SimpleNamespace
from typing import Any

from orion.node_pods.node_pods_pb2 import Pod
from orion.operator.reconciler import grants
from orion.operator.reconciler.governance import How
from orion.operator.reconciler.grants import desired_grant
from orion.operator.reconciler.pods_of_nodes import PodsOfNodes
from orion.operator.reconciler.records import PodRecord, pod_record, share_record
from tests.operator.fake_cluster import FakeCluster, state_of
from tests.operator.share_objects import NODE, pinned, pod, share


def named(container: str) -> PodRecord:
    """Return the record of a pod with one container."""
    body = pod("p", uid="u")
    body["spec"]["containers"][0]["name"] = container
    return pod_record(body)


def test_grants_of_pods_that_have_gone_are_forgotten(monkeypatch: Any) -> None:
    monkeypatch.setattr(grants, "_KEPT_MAX", 10)
    body = share()
    body["metadata"] |= {"uid": "u", "generation": 1}
    record = share_record(body)
    governance: Any = SimpleNamespace(how=How.SHARE, shares=("s",))
    shares: Any = SimpleNamespace(named={"s": record})
    stays = desired_grant(named("stays"), governance, shares)
    for number in range(100):
        assert f"job-{number}" in str(desired_grant(named(f"job-{number}"), governance, shares))
        assert desired_grant(named("stays"), governance, shares) is stays, "the grant of a pod that is there is kept"
    assert len(record.grants) == 10


def test_an_agent_learns_which_pods_need_the_grant_that_they_have() -> None:
    cluster = FakeCluster([NODE, share(), pinned("s"), pod("free", app="none")])
    sent = pods_of(cluster)
    assert all(each.grant and not each.kept for each in sent.values())
    cluster.delete(("GPUShare", "n", "s"))
    sent = pods_of(cluster)
    assert (sent["p"].grant, sent["p"].kept[:23]) == ("", "GPUShare s was deleted:")
    assert sent["free"].grant
    assert not sent["free"].kept


def pods_of(cluster: FakeCluster) -> dict[str, Pod]:
    """Return what the agent of the pods' node learns, by the pods' names."""
    state = state_of(cluster)
    state.take_changed_nodes()
    return {each.name: each for each in PodsOfNodes(state).of("node").pods}
