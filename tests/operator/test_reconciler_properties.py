"""The reconciler is level-triggered: it reaches the same state for every order of events, and after every kill."""

import copy
import random
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orion.crds.annotations import PINNED_SHARE, PRIORITY, SHARE
from orion.operator.reconciler.pods_of_nodes import PodsOfNodes
from orion.operator.reconciler.state import State
from tests.operator.fake_cluster import Body, FakeCluster, Reconciler, forget, key_of, state_of, take

NAMES = ("a", "b", "c")
NAMESPACES = ("one", "two")
ON = ("n1", "n2")
LABELS = st.dictionaries(st.sampled_from(["app", "tier"]), st.sampled_from(["x", "y"]), max_size=2)


@st.composite
def shares(draw: st.DrawFn) -> Body:
    spec: dict[str, Any] = {"priority": draw(st.sampled_from(["hp", "be"]))}
    if draw(st.booleans()):
        spec["selector"] = {"matchLabels": draw(LABELS)}
        if draw(st.booleans()):
            spec["selector"]["matchExpressions"] = [{"key": "tier", "operator": "DoesNotExist"}]
    if draw(st.booleans()):
        spec["memory"] = {"limit": draw(st.sampled_from(["8Gi", "1Gi"]))}
    if draw(st.integers(0, 4)) == 0:
        spec["failClosed"] = True
    if draw(st.integers(0, 9)) == 0:
        spec["priority"] = "neither"  # a value that a later version may allow
    made = {"creationTimestamp": draw(st.sampled_from(["2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"]))}
    return {"kind": "GPUShare", "metadata": _meta(draw) | made, "spec": spec}


@st.composite
def pods(draw: st.DrawFn) -> Body:
    marks: dict[str, str] = {}
    priority = draw(st.sampled_from(["hp", "be", "be", None, "wrong"]))
    if priority:
        marks[PRIORITY] = priority
    if draw(st.integers(0, 2)) == 0:
        marks[SHARE] = draw(st.sampled_from(NAMES))
    if draw(st.booleans()):
        marks[PINNED_SHARE] = draw(st.sampled_from(["", *NAMES]))
    amount = draw(st.integers(0, 2))
    resources = {"limits": {f"orion.gpu/{priority}": str(amount)}} if amount and priority else {}
    return {
        "kind": "Pod",
        "metadata": {**_meta(draw), "labels": draw(LABELS), "annotations": marks},
        "spec": {
            "nodeName": draw(st.sampled_from(["", *ON])),
            "containers": [{"name": "main", "resources": resources}],
        },
        "status": {"phase": draw(st.sampled_from(["Pending", "Running", "Succeeded"]))},
    }


@st.composite
def devices(draw: st.DrawFn) -> Body:
    number = draw(st.integers(0, 2))
    uuid = f"GPU-0000000{number}-0000-4000-8000-000000000000"

    def pod() -> Any:
        return {"namespace": draw(st.sampled_from(NAMESPACES)), "name": draw(st.sampled_from(NAMES))}

    ratio = draw(st.sampled_from([0, 0.5, 0.98]))
    message = draw(st.sampled_from([None, "it is slow"]))
    clients = [{"slot": "be-0", "priority": "be", "processId": 7, "pod": pod(), "gatedRatio": ratio}]
    status: dict[str, Any] = {"node": draw(st.sampled_from(["n1", "n2"])), "uuid": uuid, "model": "NVIDIA H200"}
    status |= {"mode": draw(st.sampled_from(["timeslice", "mps"])), "simulated": draw(st.booleans())}
    status["heldSlots"] = [{"name": "be-0", "priority": "be", "pod": pod(), "clients": 1}]
    status["clients"] = [{**clients[0], **({"message": message} if message else {})}]
    if draw(st.booleans()):
        status["unmanaged"] = [{"processId": 8, "command": "python", "pod": pod()}]
        status["unmanagedProcessCount"] = 1
    return {
        "kind": "GPUDevice",
        "metadata": {"name": uuid.lower()},
        "spec": {"cordon": draw(st.booleans())},
        "status": status,
    }


def _meta(draw: st.DrawFn) -> dict[str, Any]:
    return {"namespace": draw(st.sampled_from(NAMESPACES)), "name": draw(st.sampled_from(NAMES))}


NODES = st.builds(lambda name: {"kind": "Node", "metadata": {"name": name}}, st.sampled_from(["n1", "n2"]))
BODIES = st.one_of(shares(), pods(), devices(), NODES)
CLUSTERS = st.lists(BODIES, max_size=20)
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def lasting(cluster: FakeCluster) -> dict[Any, Any]:
    """Return the objects without resourceVersions, and the Events."""
    objects = copy.deepcopy(cluster.objects)
    for body in objects.values():
        body["metadata"].pop("resourceVersion")
    return {"objects": objects, "events": cluster.events}


def received(state: State) -> dict[str, Any]:
    """Return what the agents of all nodes receive once all changes have been applied."""
    state.take_changed_nodes()
    return {node: PodsOfNodes(state).of(node) for node in ON}


@PATIENT
@given(CLUSTERS)
def test_a_second_pass_writes_nothing(bodies: list[Body]) -> None:
    cluster = FakeCluster(bodies)
    reconciler = Reconciler(cluster, state_of(cluster))
    reconciler.run()
    assert reconciler.run() == 0
    assert Reconciler(cluster, state_of(cluster)).run() == 0


@PATIENT
@given(CLUSTERS, st.integers(0, 2**32))
def test_the_order_of_events_and_of_work_does_not_matter(bodies: list[Body], seed: int) -> None:
    order, straight, shuffled = random.Random(seed), FakeCluster(bodies), FakeCluster(bodies)
    Reconciler(straight, state_of(straight)).run()
    Reconciler(shuffled, state_of(shuffled, order), order).run()
    assert received(state_of(straight)) == received(state_of(shuffled, order))
    assert lasting(straight)["objects"] == lasting(shuffled)["objects"]


@PATIENT
@given(CLUSTERS, st.lists(st.integers(0, 6), max_size=4))
def test_after_a_kill_at_any_write_the_next_process_reaches_the_same_state(
    bodies: list[Body], kills: list[int]
) -> None:
    undisturbed, cluster = FakeCluster(bodies), FakeCluster(bodies)
    Reconciler(undisturbed, state_of(undisturbed)).run()
    for after in kills:
        Reconciler(cluster, state_of(cluster)).run(killed_after=after)
    Reconciler(cluster, state_of(cluster)).run()
    assert lasting(cluster)["objects"] == lasting(undisturbed)["objects"]


@PATIENT
@given(CLUSTERS, st.lists(st.tuples(BODIES, st.booleans()), max_size=15), st.sampled_from([None, 1, 2]))
def test_following_changes_gives_the_same_state_as_a_restart(
    bodies: list[Body], changes: list[tuple[Body, bool]], most: int | None
) -> None:
    cluster = FakeCluster(bodies)
    state = state_of(cluster, most=most)
    reconciler = Reconciler(cluster, state)
    reconciler.run()
    for body, goes in changes:
        key = key_of(body)
        if not goes:
            keys = take(state, cluster.put(body))
        elif key in cluster.objects:
            cluster.delete(key)
            keys = forget(state, key)
        else:
            continue
        reconciler.run(keys)
    assert Reconciler(cluster, state_of(cluster, most=most)).run() == 0


@PATIENT
@given(CLUSTERS, st.lists(st.tuples(BODIES, st.booleans()), max_size=15))
def test_agents_learn_of_every_change_and_of_no_other_node(
    bodies: list[Body], changes: list[tuple[Body, bool]]
) -> None:
    cluster = FakeCluster(bodies)
    state = state_of(cluster)
    state.take_changed_nodes()
    known = received(state)
    for body, goes in changes:
        key = key_of(body)
        if not goes:
            take(state, cluster.put(body))
        elif key in cluster.objects:
            cluster.delete(key)
            forget(state, key)
        for node in state.take_changed_nodes() & known.keys():
            known[node] = PodsOfNodes(state).of(node)
        assert known == received(state) == received(state_of(cluster))
    for node, message in known.items():
        there = {
            (body["metadata"]["namespace"], body["metadata"]["name"])
            for body in cluster.objects.values()
            if body["kind"] == "Pod" and body["spec"]["nodeName"] == node
        }
        assert {(pod.namespace, pod.name) for pod in message.pods} == there


@PATIENT
@given(CLUSTERS)
def test_two_reconcilers_write_the_same(bodies: list[Body]) -> None:
    cluster = FakeCluster(bodies)
    one, other = (Reconciler(cluster, state_of(cluster)) for _ in range(2))
    one.run()
    posted = dict(cluster.events)
    other.run()  # this reconciler has an outdated state
    for _ in range(3):
        one, other = (Reconciler(cluster, state_of(cluster)) for _ in range(2))
        assert one.run() == other.run() == 0
    assert cluster.events == posted


def test_an_empty_state_needs_no_writes() -> None:
    assert Reconciler(FakeCluster(), State()).run() == 0
