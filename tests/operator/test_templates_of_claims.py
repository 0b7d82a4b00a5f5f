"""The operator makes the templates that pods wait for, and knows which slots pods have by claims."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from orion.crds.annotations import PINNED_SHARE
from orion.crds.claims import SHAPE, ClaimShape
from orion.crds.policy import Priority
from orion.operator.reconciler.decisions import decide
from orion.operator.reconciler.keys import Key, Kind
from orion.operator.reconciler.pods_of_nodes import PodsOfNodes
from orion.operator.reconciler.records import Named, pod_record
from orion.operator.reconciler.state import State
from orion.operator.reconciler.writes import MakeTemplate, RequeueAfter, SayWhatIsMissing, Write
from tests.operator.fake_cluster import NOW, Body, FakeCluster, state_of, take
from tests.operator.share_objects import share

SHAPES = ClaimShape(priority=Priority.BE, gpus={"main": 2}, time_milli=300)


def pod(name: str = "p", shape: ClaimShape = SHAPES, node: str = "", **source: str) -> Body:
    source = source or {"resourceClaimTemplateName": shape.template_name}
    claims = [{"name": "orion", "request": "main"}]
    return {
        "kind": "Pod",
        "metadata": {
            "namespace": "n",
            "name": name,
            "labels": {"app": "s"},
            "annotations": {"orion/priority": "be", PINNED_SHARE: "", SHAPE: shape.as_json()},
        },
        "spec": {
            "nodeName": node,
            "containers": [{"name": "main", "resources": {"claims": claims}}, {"name": "other"}],
            "resourceClaims": [{"name": "orion", **source}],
        },
        "status": {"phase": "Running" if node else "Pending"},
    }


def decided(state: State, shape: ClaimShape = SHAPES, now: float = 0.0) -> list[Write]:
    return decide(state, Key(Kind.TEMPLATE, Named("n", shape.template_name)), NOW, now)


def test_a_template_is_made_while_a_pod_waits_for_it() -> None:
    cluster = FakeCluster([pod()])
    state = state_of(cluster, by_claims=True)
    assert Key(Kind.TEMPLATE, Named("n", SHAPES.template_name)) in set(state.everything())
    made, again = decided(state)
    assert made == MakeTemplate("n", SHAPES.template())
    assert isinstance(again, RequeueAfter)
    take(state, cluster.put(pod(node="node")))
    assert decided(state) == []
    assert state.templates.is_named(Named("n", SHAPES.template_name))
    state.drop_pod(Named("n", "p"))
    assert not state.templates.is_named(Named("n", SHAPES.template_name))


def test_a_template_that_exists_is_made_again_seldom_unless_another_pod_comes() -> None:
    cluster = FakeCluster([pod()])
    state = state_of(cluster, by_claims=True)
    pauses = []
    for now in (0.0, 10.0, 30.0, 70.0, 150.0):
        made, again = decided(state, now=now)
        assert isinstance(made, MakeTemplate)
        assert isinstance(again, RequeueAfter)
        pauses.append(again.seconds)
    assert pauses == [10.0, 20.0, 40.0, 80.0, 120.0]
    (early,) = decided(state, now=160.0)
    assert early == RequeueAfter(110.0)
    take(state, cluster.put(pod("another")))
    assert isinstance(decided(state, now=160.5)[0], MakeTemplate)
    take(state, cluster.put(pod("third")))
    (soon,) = decided(state, now=160.75)  # a burst of pods makes one request a second
    assert soon == RequeueAfter(0.75)


def unplaced(message: str) -> Body:
    found = pod()
    found["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    found["status"]["conditions"] = [condition]
    return found


def test_a_pod_that_waits_for_something_else_than_gpus_makes_the_operator_read_no_claims() -> None:
    state = state_of(FakeCluster([unplaced("0/1 nodes are available: 1 Insufficient cpu.")]), by_claims=True)
    assert decide(state, Key(Kind.POD, Named("n", "p")), datetime(2026, 1, 1, tzinfo=UTC), 0.0) == []


def test_a_pod_that_the_scheduler_cannot_place_learns_what_is_missing_less_and_less_often() -> None:
    waits = unplaced("0/3 nodes are available: 1 Insufficient cpu, 2 cannot allocate all claims. preemption: none.")
    cluster = FakeCluster([waits])
    state, key = state_of(cluster, by_claims=True), Key(Kind.POD, Named("n", "p"))
    created, pauses = datetime(2026, 1, 1, tzinfo=UTC), []
    for waited in (1, 60, 3600):
        said, again = decide(state, key, created + timedelta(seconds=waited), 0.0)
        assert isinstance(said, SayWhatIsMissing)
        assert said.shape == SHAPES.as_json()
        assert isinstance(again, RequeueAfter)
        pauses.append(again.seconds)
    assert pauses == [10.0, 30.0, 600.0]
    take(state, cluster.put(pod(node="node")))
    assert decide(state, key, created, 0.0) == []
    assert decide(state_of(FakeCluster([waits])), key, created, 0.0) == []  # a device plugin gives slots


def test_a_device_plugins_operator_makes_no_template() -> None:
    cluster = FakeCluster([pod()])
    assert decided(state_of(cluster)) == []


def test_a_shape_counts_only_in_an_admitted_pod_that_uses_the_claim() -> None:
    forged, unused = pod(), pod()
    del forged["metadata"]["annotations"][PINNED_SHARE]
    unused["spec"]["containers"][0]["resources"]["claims"][0]["name"] = "other"
    for each in (forged, unused):
        assert pod_record(FakeCluster([each]).objects["Pod", "n", "p"]).template == ""


def test_a_pod_that_comes_queues_its_template() -> None:
    state = state_of(FakeCluster(), by_claims=True)
    body = FakeCluster([pod()]).objects["Pod", "n", "p"]
    assert Key(Kind.TEMPLATE, Named("n", SHAPES.template_name)) in state.put_pod(pod_record(body))


def test_a_shape_that_does_not_fit_the_templates_name_makes_none() -> None:
    for forged in (pod(resourceClaimTemplateName="orion-be-0123456789abcdef"), pod(resourceClaimName="mine")):
        record = pod_record(FakeCluster([forged]).objects["Pod", "n", "p"])
        assert record.template == ""
        assert record.slots == (("main", 1),)
    later = json.loads(SHAPES.as_json()) | {"format": 99}
    forged = pod()
    forged["metadata"]["annotations"][SHAPE] = json.dumps(later)
    assert pod_record(FakeCluster([forged]).objects["Pod", "n", "p"]).template == ""


def test_a_pod_with_a_claim_gets_the_grant_of_its_share() -> None:
    cluster = FakeCluster([share(memory={"limit": "2Gi"}), pod(node="node")])
    state = state_of(cluster, by_claims=True)
    state.take_changed_nodes()
    (found,) = PodsOfNodes(state).of("node").pods
    grant: dict[str, Any] = json.loads(found.grant)
    assert grant["share"] == "s"
    assert grant["containers"] == {"main": {"slots": 2, "memoryLimitBytes": 2 << 30, "memoryRequestBytes": 2 << 30}}


def test_a_claim_of_another_name_gives_no_slots() -> None:
    other = pod(node="node")
    other["spec"]["resourceClaims"][0]["name"] = "gpu"
    assert pod_record(FakeCluster([other]).objects["Pod", "n", "p"]).slots == ()
