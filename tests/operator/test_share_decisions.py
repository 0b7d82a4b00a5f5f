"""The operator's decisions about shares, case by case: rows, messages, Events, and when a status is written."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from orion.api_server.events import short_note
from orion.operator.reconciler.decisions import decide
from orion.operator.reconciler.keys import Key, Kind
from orion.operator.reconciler.pods_of_nodes import PodsOfNodes
from orion.operator.reconciler.records import Named
from orion.operator.reconciler.writes import EvictPod, PatchNode, PatchShare, PostEvent, Remember, RequeueAfter, Write
from tests.operator.fake_cluster import NOW, Body, FakeCluster, Reconciler, forget, state_of, take

UUID = "GPU-00000000-0000-4000-8000-00000000000{}"
EXAMPLES = Path(__file__).parents[2] / "examples"


def share(name: str = "s", **spec: Any) -> Body:
    spec = {"priority": "be", "selector": {"matchLabels": {"app": name}}} | spec
    return {"kind": "GPUShare", "metadata": {"namespace": "n", "name": name}, "spec": spec}


def pod(name: str, app: str = "s", priority: str | None = "be", running: bool = True, **meta: Any) -> Body:
    marks = {"orion/priority": priority} if priority else {}
    limits = {f"orion.gpu/{priority}": "1"} if priority else {}
    return {
        "kind": "Pod",
        "metadata": {"namespace": "n", "name": name, "labels": {"app": app}, "annotations": marks, **meta},
        "spec": {"nodeName": "node", "containers": [{"name": "main", "resources": {"limits": limits}}]},
        "status": {"phase": "Running" if running else "Pending"},
    }


def pinned(to: str, app: str = "s", **marks: str) -> Body:
    made = pod("p", app=app)
    made["metadata"]["annotations"] |= {"orion.gpu/share": to, **marks}
    return made


def device(number: int = 0, spec: Any = None, **status: Any) -> Body:
    uuid = UUID.format(number)
    status = {"node": "node", "uuid": uuid, "model": "NVIDIA H200", "mode": "timeslice"} | status
    return {"kind": "GPUDevice", "metadata": {"name": uuid.lower()}, "spec": spec or {}, "status": status}


def row(of: str, **more: Any) -> dict[str, Any]:
    place = {"slot": "be-0", "priority": "be", "processId": 7, "command": "python"}
    return {**place, "pod": {"namespace": "n", "name": of}, **more}


def slot(of: str, name: str = "be-0", share: str = "s", generation: int = 1, clients: int = 1) -> dict[str, Any]:
    place = {"name": name, "priority": name[:2], "pod": {"namespace": "n", "name": of}}
    return {**place, "share": share, "generation": generation, "clients": clients}


def unmanaged(of: str, **more: Any) -> dict[str, Any]:
    return {"processId": 9, "command": "miner", "pod": {"namespace": "n", "name": of}, **more}


NODE = {"kind": "Node", "metadata": {"name": "node"}}


def reconciled(*bodies: Body) -> FakeCluster:
    cluster = FakeCluster([NODE, *bodies])
    Reconciler(cluster, state_of(cluster)).run()
    return cluster


def status(cluster: FakeCluster, name: str = "s") -> dict[str, Any]:
    return dict(cluster.objects["GPUShare", "n", name]["status"])


def condition(cluster: FakeCluster, kind: str, name: str = "s") -> tuple[str, str, str]:
    found = next(each for each in status(cluster, name)["conditions"] if each["type"] == kind)
    return found["status"], found["reason"], found["message"]


def events(cluster: FakeCluster) -> list[tuple[str, str]]:
    return sorted((event.regarding["name"], event.reason) for event in cluster.events.values())


def writes(cluster: FakeCluster, key: Key, monotonic: float = 0.0) -> list[Write]:
    return decide(state_of(cluster), key, NOW, monotonic)


def grant_of(cluster: FakeCluster, name: str = "p", most: int | None = None) -> str:
    """Return the grant that the agent of the pod's node gets; empty: none."""
    state = state_of(cluster, most=most)
    state.take_changed_nodes()
    return next(each.grant for each in PodsOfNodes(state).of("node").pods if each.name == name)


POD = Key(Kind.POD, Named("n", "p"))
SHARE = Key(Kind.SHARE, Named("n", "s"))


def test_a_grant_costs_no_write() -> None:
    cluster = FakeCluster([share(memory={"limit": "1Gi"}), pod("p")])
    assert writes(cluster, POD) == []
    assert '"memoryLimitBytes":1073741824' in grant_of(cluster)


def test_a_pod_without_a_share_gets_the_defaults() -> None:
    grant = grant_of(FakeCluster([pod("p", app="unselected")]))
    assert grant == '{"containers":{"main":{"slots":1}},"failClosed":false,"format":1,"priority":"be"}'


def test_a_pod_that_is_being_deleted_gets_no_writes() -> None:
    assert writes(FakeCluster([share(), pod("p", deletionTimestamp="2026-01-01T00:00:00Z")]), POD) == []


def test_a_share_of_the_other_priority_does_not_govern_and_reports_why() -> None:
    cluster = reconciled(share(priority="hp"), pod("p"))
    assert condition(cluster, "Ready") == (
        "False",
        "PriorityMismatch",
        "pod p: GPUShare s is for priority hp, and this pod's priority is be; make the two equal",
    )
    assert events(cluster) == [("p", "PriorityMismatch"), ("s", "ReadyPriorityMismatch")]


def test_shares_beyond_the_bound_do_not_govern_until_older_ones_go() -> None:
    def aged(name: str, second: int, **spec: Any) -> Body:
        made = share(name, **spec)
        made["metadata"]["creationTimestamp"] = f"2026-01-01T00:00:0{second}Z"
        return made

    pods = [pod("p", app="new"), pod("q", app="other")]
    pods[1]["metadata"]["annotations"]["orion/share"] = "new"
    cluster = FakeCluster([NODE, aged("old", 1), aged("new", 2, memory={"limit": "1Gi"}), *pods])
    state = state_of(cluster, most=1)
    Reconciler(cluster, state).run()
    holds, reason, message = condition(cluster, "Ready", "new")
    assert (holds, reason) == ("False", "TooManyShares")
    assert message.startswith("GPUShare new does not govern: only the 1 oldest GPUShares of a namespace do; delete")
    assert events(cluster) == [("new", "ReadyTooManyShares"), ("q", "TooManyShares")]
    assert state.ungoverning() == {"n": 1}
    assert '"share":' not in grant_of(cluster, most=1)
    cluster.delete(("GPUShare", "n", "old"))
    Reconciler(cluster, state).run(forget(state, ("GPUShare", "n", "old")))
    assert condition(cluster, "Ready", "new")[1] == "Granted"
    assert '"share":"new"' in grant_of(cluster, most=1)
    assert state.ungoverning() == {}


def test_a_share_that_ceases_to_govern_leaves_the_grants_of_its_pods() -> None:
    cluster = reconciled(share(memory={"limit": "1Gi"}), pinned("s"))
    earlier = share("earlier")
    earlier["metadata"]["creationTimestamp"] = ""
    cluster.objects["GPUShare", "n", "s"]["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    cluster.put(earlier)
    Reconciler(cluster, state_of(cluster, most=1)).run()
    assert ("p", "TooManyShares") in events(cluster)
    assert grant_of(cluster, most=1) == ""  # the agent keeps the grant that it has


def test_a_pod_that_did_not_pass_the_webhook_is_named() -> None:
    bare = pod("p")
    bare["spec"]["containers"][0]["resources"] = {}
    cluster = reconciled(share(), bare)
    assert condition(cluster, "Ready")[1] == "NotAdmitted"
    assert "p; delete them and create them again" in condition(cluster, "Ready")[2]
    assert grant_of(cluster) == ""


def test_pods_without_the_annotation_are_counted_and_the_first_sixteen_named() -> None:
    cluster = reconciled(share(), *(pod(f"p{number:02}", priority=None) for number in range(20)))
    pods = status(cluster)["pods"]
    assert pods["unannotated"] == 20
    assert pods["unannotatedNames"] == [f"p{number:02}" for number in range(16)]
    assert events(cluster) == [("s", "PodsWithoutAnnotation")]


def test_the_status_has_the_worst_sixty_four_rows_and_counts_of_all() -> None:
    names = [f"p{number:03}" for number in range(80)]
    devices = [
        device(
            number,
            heldSlots=[slot(name, f"be-{index}") for index, name in enumerate(names[number * 40 : number * 40 + 40])],
            clients=[
                row(name, slot=f"be-{index}", gatedRatio=index / 100)
                for index, name in enumerate(names[number * 40 : number * 40 + 40])
            ],
        )
        for number in range(2)
    ]
    devices[1]["status"]["clients"][5]["message"] = "it is refused memory"
    devices[1]["status"]["clients"][6]["state"] = "stopped"
    cluster = reconciled(share(), *(pod(name) for name in names), *devices)
    found = status(cluster)
    assert found["clientCounts"] == {"total": 80, "stopped": 1, "troubled": 1, "unmanaged": 0}
    assert found["gpus"] == 2
    assert [each["pod"]["name"] for each in found["clients"][:4]] == ["p045", "p046", "p039", "p079"]
    assert len(found["clients"]) == 64
    assert condition(cluster, "Degraded")[1:] == (
        "ClientTroubled",
        "process 7 (python) of pod p045: it is refused memory",
    )


def test_rows_of_an_earlier_pod_of_the_same_name_do_not_count() -> None:
    old = row("p") | {"pod": {"namespace": "n", "name": "p", "uid": "another"}}
    assert status(reconciled(share(), pod("p"), device(clients=[old])))["clientCounts"]["total"] == 0


def test_a_process_without_the_hook_is_named() -> None:
    cluster = reconciled(share(), pod("p"), device(heldSlots=[slot("p")], unmanaged=[unmanaged("p")]))
    state, reason, message = condition(cluster, "HookInjected")
    assert (state, reason) == ("False", "Unmanaged")
    assert "process 9 (miner) of pod p" in message
    assert ("s", "HookInjectedUnmanaged") in events(cluster)


def test_fail_closed_evicts_after_an_event_and_once() -> None:
    cluster = FakeCluster([share(failClosed=True), pod("p"), device(unmanaged=[unmanaged("p")])])
    Reconciler(cluster, state_of(cluster)).run()
    assert cluster.objects["Pod", "n", "p"]["metadata"]["deletionTimestamp"]
    assert ("p", "HookMissing") in events(cluster)
    fresh = FakeCluster([share(failClosed=True), pod("p"), device(unmanaged=[unmanaged("p")])])
    kinds = [type(write) for write in writes(fresh, POD)]
    assert kinds == [PostEvent, EvictPod]


@pytest.mark.parametrize("what", ["not closed", "not running", "another pod's", "unmanaged"])
def test_nothing_else_is_evicted(what: str) -> None:
    found = (
        unmanaged("p")
        if what != "another pod's"
        else unmanaged("p") | {"pod": {"namespace": "n", "name": "p", "uid": "before"}}
    )
    victim = pod("p", running=what != "not running", priority=None if what == "unmanaged" else "be")
    cluster = FakeCluster([share(failClosed=what != "not closed"), victim, device(unmanaged=[found])])
    assert EvictPod not in [type(write) for write in writes(cluster, POD)]


def test_fail_closed_of_a_deleted_share_evicts_no_pod() -> None:
    report = device(heldSlots=[slot("p")], unmanaged=[unmanaged("p")])
    before = FakeCluster([share(failClosed=True), pinned("s"), report])
    assert EvictPod in [type(write) for write in writes(before, POD)]
    assert EvictPod not in [type(write) for write in writes(FakeCluster([pinned("s"), report]), POD)]


def test_an_agent_of_another_node_evicts_no_pod() -> None:
    cluster = FakeCluster([share(failClosed=True), pod("p"), device(node="elsewhere", unmanaged=[unmanaged("p")])])
    assert EvictPod not in [type(write) for write in writes(cluster, POD)]


def test_an_event_fits_the_limits_of_the_api_server() -> None:
    reference = {"namespace": "n", "name": f"{'a' * 199}-{'b' * 50}", "uid": "u"}
    event = PostEvent(reference, True, "DegradedClientTroubled", "Reconcile", "x" + "\U0001f600" * 500)
    assert len(short_note(event.note).encode()) == 1_021  # the API server counts bytes
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", event.name)


def test_a_share_is_ready_once_the_agents_have_applied_its_present_spec() -> None:
    cluster = reconciled(share(), pod("p"), pod("q"), device(heldSlots=[slot("p"), slot("q", "be-1", generation=0)]))
    assert condition(cluster, "Ready") == (
        "False",
        "GrantsPending",
        "the node agents of 1 of 2 pods have not applied the grant of this share yet",
    )
    assert status(cluster)["pods"]["granted"] == 1
    cluster.put(device(heldSlots=[slot("p"), slot("q", "be-1")]))
    Reconciler(cluster, state_of(cluster)).run()
    assert condition(cluster, "Ready") == ("True", "Granted", "all 2 pods have the grant of this share")


def test_a_share_is_degraded_while_requests_on_its_gpu_are_scaled() -> None:
    def held(other: float) -> Body:
        rows = [slot("p") | {"computeRequest": 0.8}, slot("q", "be-1", share="t") | {"computeRequest": other}]
        return device(heldSlots=[*rows, slot("r", "hp-0", share="u")])

    cluster = reconciled(share(compute={"request": 0.8}), pod("p"), held(0.2))
    assert condition(cluster, "Degraded")[:2] == ("False", "AsAsked")
    cluster.put(held(0.4))
    Reconciler(cluster, state_of(cluster)).run()
    holds, reason, message = condition(cluster, "Degraded")
    assert (holds, reason) == ("True", "RequestsScaled")
    assert (
        f"pod p asks for 0.8 of {UUID.format(0).lower()}, whose be slots ask for 1.2 in all: it gets 0.667" in message
    )
    cluster.put(held(0.2))
    Reconciler(cluster, state_of(cluster)).run()
    assert condition(cluster, "Degraded")[:2] == ("False", "AsAsked")


def test_an_old_pod_that_ends_beside_its_successor_does_not_degrade_a_share() -> None:
    rows = [slot("old") | {"computeRequest": 0.6}, slot("new", "be-1") | {"computeRequest": 0.6}]
    cluster = reconciled(share(compute={"request": 0.6}), pod("old"), pod("new"), device(heldSlots=rows))
    assert condition(cluster, "Degraded")[:2] == ("True", "RequestsScaled")
    cluster.put(pod("old", deletionTimestamp="2026-01-01T00:00:00Z"))
    Reconciler(cluster, state_of(cluster)).run()
    assert condition(cluster, "Degraded")[:2] == ("False", "AsAsked")


@pytest.mark.parametrize(
    ("memory", "says"),
    [
        ({"limit": "40Gi"}, ""),
        ({"request": "40Gi", "limit": "40GiB"}, ""),
        (
            {"request": "16Gi", "limit": "40Gi"},
            "; spec.memory reserves 16Gi of a GPU for each slot and allows 40Gi: the 24Gi between them are not sure, "
            "as other pods may get them",
        ),
        (
            {"request": "16Gi"},
            "; spec.memory reserves 16Gi of a GPU for each slot and sets no limit: what a slot allocates beyond that "
            "is not sure, as other pods may get it",
        ),
    ],
)
def test_a_share_says_which_memory_it_allows_and_does_not_reserve(memory: dict[str, str], says: str) -> None:
    cluster = reconciled(share(memory=memory), pod("p"), device(heldSlots=[slot("p")]))
    assert condition(cluster, "Ready") == ("True", "Granted", f"the pod has the grant of this share{says}")


def test_a_share_from_before_oversubscribe_keeps_its_grants_and_says_what_to_write() -> None:
    memory = {"request": "1Gi", "limit": "2Gi"}
    cluster = reconciled(share(memory=memory), pod("p"), device(heldSlots=[slot("p")]))
    assert json.loads(grant_of(cluster))["containers"]["main"] == {
        "slots": 1, "memoryRequestBytes": 2**30, "memoryLimitBytes": 2**31,
    }  # fmt: skip
    assert condition(cluster, "Ready")[:2] == ("True", "Granted")
    status, reason, message = condition(cluster, "Degraded")
    assert (status, reason) == ("True", "MemoryNotGivenBack")
    assert "set spec.memory.oversubscribe to park or unified" in message


PARKS = {"request": "1Gi", "limit": "8Gi", "oversubscribe": "park"}
SINCE = "2026-01-02T03:04:05Z"


def parked(of: str, number: int, since: str = SINCE) -> dict[str, Any]:
    return slot(of, f"be-{number}") | {"parked": {"since": since, "memory": "6Gi"}}


def test_the_grant_of_a_pod_with_a_liveness_probe_does_not_park_it() -> None:
    watched, free = pod("p"), pod("q")
    watched["spec"]["containers"][0]["livenessProbe"] = {"tcpSocket": {"port": 80}}
    cluster = reconciled(share(memory=PARKS), watched, free)
    parks = {name: json.loads(grant_of(cluster, name))["containers"]["main"].get("memoryParks") for name in ("p", "q")}
    assert parks == {"p": None, "q": True}


def test_parked_slots_are_counted_listed_first_and_a_condition() -> None:
    pods = [pod(name) for name in ("a", "b", "c")]
    rows = [used("a", 0, charged=0.1), parked("b", 1, "2026-01-02T03:04:06Z"), parked("c", 2)]
    cluster = reconciled(share(memory=PARKS), *pods, device(heldSlots=rows))
    assert (status(cluster)["pods"]["parked"], status(cluster)["pods"]["running"]) == (2, 3)
    first, second, third = status(cluster)["slots"]
    assert first == {
        "pod": {"namespace": "n", "name": "b"}, "node": "node", "gpu": UUID.format(0), "slot": "be-1",
        "parked": {"since": "2026-01-02T03:04:06Z", "memory": "6Gi"},
    }  # fmt: skip
    assert (second["slot"], third["slot"]) == ("be-2", "be-0")
    holds, reason, message = condition(cluster, "Parked")
    assert (holds, reason) == ("True", "SlotsParked")
    assert message.startswith(
        "a slot of pod c (and 1 more) is parked: 6Gi of the GPU's memory are in the pod's host memory"
    )
    assert not [each for each in events(cluster) if "Parked" in each[1]]  # the agents post them


def test_the_condition_parked_is_only_where_a_slot_may_be_parked() -> None:
    def kinds(cluster: FakeCluster) -> set[str]:
        return {each["type"] for each in status(cluster)["conditions"]}

    assert "Parked" not in kinds(reconciled(share(), pod("p"), device(heldSlots=[slot("p")])))
    cluster = reconciled(share(memory=PARKS), pod("p"), device(heldSlots=[slot("p")]))
    assert condition(cluster, "Parked")[:2] == ("False", "NoneParked")
    cluster.put(share())
    Reconciler(cluster, state_of(cluster)).run()
    assert condition(cluster, "Parked")[:2] == ("False", "NoneParked")  # it was there, so it is kept true


def test_slots_that_take_turns_do_not_cause_a_write_each() -> None:
    cluster = reconciled(share(memory=PARKS), pod("p"), device(heldSlots=[slot("p")]))
    state = state_of(cluster)
    record = state.share(Named("n", "s"))
    assert record is not None
    record.written = 100.0
    take(state, cluster.put(device(heldSlots=[parked("p", 0)])))
    [again] = decide(state, SHARE, NOW, 100.1)
    assert isinstance(again, RequeueAfter)
    assert again.seconds == pytest.approx(4.9)
    assert [type(write) for write in decide(state, SHARE, NOW, 105.1)] == [PatchShare]


def test_a_slot_that_could_not_leave_degrades_its_share() -> None:
    rows = [slot("p") | {"parkRefused": "it uses managed memory"}]
    cluster = reconciled(share(memory=PARKS), pod("p"), device(heldSlots=rows))
    state, reason, message = condition(cluster, "Degraded")
    assert (state, reason) == ("True", "ParkRefused")
    assert message == f"pod p could not leave the memory of {UUID.format(0).lower()}: it uses managed memory"


def test_a_slot_for_which_host_memory_is_short_degrades_its_share() -> None:
    rows = [slot("p") | {"parkRefused": "it is short", "parkRefusedReason": "HostMemoryShort"}]
    report = device(heldSlots=rows, clients=[row("p", message="it is short")])
    cluster = reconciled(share(memory=PARKS), pod("p"), report)
    assert condition(cluster, "Degraded")[:2] == ("True", "HostMemoryShort")
    worse = device(heldSlots=rows, clients=[row("p", message="it is lost")])
    assert condition(reconciled(share(memory=PARKS), pod("p"), worse), "Degraded")[1] == "ClientTroubled"
    assert ("s", "DegradedHostMemoryShort") in events(cluster)


def test_a_condition_of_a_later_version_stays_and_gets_no_event() -> None:
    later = {"type": "Later", "status": "True", "lastTransitionTime": SINCE, "reason": "Later", "message": ""}
    body = share()
    body["status"] = {"conditions": [later]}
    cluster = reconciled(body, pod("p"))
    assert condition(cluster, "Later") == ("True", "Later", "")
    assert not [each for each in events(cluster) if each[1].startswith("Later")]


def test_a_complaint_is_said_once_and_again_after_it_has_changed() -> None:
    cluster = FakeCluster([NODE, share(priority="hp"), pod("p")])
    state = state_of(cluster)
    kinds = [type(write) for write in decide(state, POD, NOW, 0.0)]
    assert kinds == [PostEvent, Remember]
    Reconciler(cluster, state).run()
    take(state, cluster.put(pod("p", running=False)))
    assert decide(state, POD, NOW, 0.0) == []
    take(state, cluster.put(share(priority="be")))
    Reconciler(cluster, state).run()
    take(state, cluster.put(share(priority="hp")))
    assert [type(write) for write in decide(state, POD, NOW, 0.0)] == [PostEvent, Remember]


def test_another_shares_policy_on_the_gpu_is_a_conflict_unless_it_is_the_same() -> None:
    chat = share(priority="hp", policy="gate")
    held: dict[str, Any] = {"heldSlots": [slot("p", "hp-0")]}
    same = {"name": "gate", "share": "n/other"}
    cluster = reconciled(chat, pod("p", priority="hp"), device(**held, policy=same))
    assert condition(cluster, "PolicyConflict")[:2] == ("False", "Applied")
    cluster = reconciled(chat, pod("p", priority="hp"), device(**held, policy=same | {"name": "none"}))
    assert condition(cluster, "PolicyConflict")[:2] == ("True", "OtherShare")
    assert "policy none of GPUShare n/other" in condition(cluster, "PolicyConflict")[2]


def test_a_slowdown_over_the_limit_is_reported_and_does_not_flicker() -> None:
    bodies = NODE, share(priority="hp", maxSlowdown=1.2), pod("p", priority="hp")
    held: dict[str, Any] = {"mode": "mps", "heldSlots": [slot("p", "hp-0")]}

    def seen(cluster: FakeCluster, slowdown: float) -> str:
        cluster.put(device(**held, clients=[row("p", slot="hp-0", priority="hp", slowdown=slowdown)]))
        Reconciler(cluster, state_of(cluster)).run()
        return condition(cluster, "Degraded")[1]

    cluster = FakeCluster(bodies)
    assert [seen(cluster, value) for value in (1.22, 1.3, 1.22, 1.2, 1.25)] == [
        "AsAsked",
        "SlowedDown",
        "SlowedDown",
        "AsAsked",
        "AsAsked",
    ]


def test_figures_are_written_once_in_thirty_seconds_and_only_past_a_threshold() -> None:
    def with_ratio(ratio: float) -> Body:
        return device(heldSlots=[slot("p")], clients=[row("p", gatedRatio=ratio)])

    cluster = FakeCluster([NODE, share(), pod("p"), with_ratio(0.5)])
    reconciler = Reconciler(cluster, state_of(cluster))
    reconciler.run()
    state = reconciler.state
    record = state.share(Named("n", "s"))
    assert record is not None
    record.written = 100.0

    take(state, cluster.put(with_ratio(0.54)))
    assert decide(state, SHARE, NOW, 1_000.0) == []
    take(state, cluster.put(with_ratio(0.56)))
    assert decide(state, SHARE, NOW, 110.0) == [RequeueAfter(20.0)]
    [write] = decide(state, SHARE, NOW, 130.0)
    assert isinstance(write, PatchShare)
    assert list(write.patch["status"]) == ["clients"]


def used(of: str, number: int, due: float = 0.4, charged: float = 0.4, **more: Any) -> dict[str, Any]:
    usage = {"due": due, "charged": charged, "measured": charged, "waited": 0.6, **more}
    return slot(of, f"be-{number}") | {"computeRequest": 0.4, "computeLimit": 0.5, "usage": usage}


def test_slots_show_their_gpu_time_and_the_worst_served_is_first() -> None:
    pods = [pod(name) for name in ("a", "b", "c")]
    rows = [used("a", 0), used("b", 1, charged=0.1, debt="500ms"), slot("c", "be-2")]
    worst, fine = status(reconciled(share(), *pods, device(heldSlots=rows)))["slots"]
    assert worst == {
        "pod": {"namespace": "n", "name": "b"}, "node": "node", "gpu": UUID.format(0), "slot": "be-1",
        "computeRequest": 0.4, "computeLimit": 0.5,
        "usage": {"due": 0.4, "charged": 0.1, "measured": 0.1, "waited": 0.6, "debt": "500ms"},
    }  # fmt: skip
    assert fine["slot"] == "be-0"


@pytest.mark.parametrize(("due", "writes_it"), [(0.4, False), (0.44, False), (0.46, True)])
def test_gpu_time_is_written_once_in_thirty_seconds_and_only_past_a_threshold(due: float, writes_it: bool) -> None:
    cluster = reconciled(share(), pod("p"), device(heldSlots=[used("p", 0)]))
    cluster.objects["GPUDevice", "", UUID.format(0).lower()]["status"]["heldSlots"] = [used("p", 0, due=due)]
    made = writes(cluster, SHARE, 1_000.0)
    assert [type(each) for each in made] == ([PatchShare] if writes_it else [])


def test_a_condition_does_not_wait_for_figures() -> None:
    cluster = reconciled(share(), pod("p"))
    state = state_of(cluster)
    record = state.share(Named("n", "s"))
    assert record is not None
    record.written = 100.0
    take(state, cluster.put(device(heldSlots=[slot("p")], unmanaged=[unmanaged("p")])))
    assert [type(write) for write in decide(state, SHARE, NOW, 100.1)] == [PostEvent, PatchShare]


def test_a_status_write_carries_the_version_that_was_seen() -> None:
    cluster = FakeCluster([share()])
    [write] = writes(cluster, SHARE)
    assert isinstance(write, PatchShare)
    assert write.patch["metadata"] == {"resourceVersion": "1"}


def test_nodes_are_labelled_by_their_gpus_and_lose_the_labels_with_them() -> None:
    node = {"kind": "Node", "metadata": {"name": "node", "labels": {"other": "1"}}}
    two = [device(0, simulated=True), device(1, {"cordon": True}, mode="mps", simulated=True)]
    cluster = reconciled(node, *two)
    assert cluster.objects["Node", "", "node"]["metadata"]["labels"] == {
        "other": "1",
        "orion.gpu/gpus": "1",
        "orion.gpu/gpu-model": "NVIDIA-H200",
        "orion.gpu/mode": "mixed",
        "orion.gpu/simulated": "true",
    }
    for number in range(2):
        cluster.delete(("GPUDevice", "", UUID.format(number).lower()))
    [write] = writes(cluster, Key(Kind.NODE, Named("", "node")))
    assert isinstance(write, PatchNode)
    assert set(write.patch["metadata"]["labels"].values()) == {None}


def ready(status: str) -> dict[str, str]:
    return {"type": "Ready", "status": status, "reason": "Because", "lastTransitionTime": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("second", "held_by", "count"),
    [
        ({}, "b", "2"),
        ({"spec": {"cordon": True}}, "b", "1"),
        ({"conditions": [ready("False")]}, "b", "1"),
        ({"conditions": [ready("True")]}, "b", "2"),
        ({"spec": {"cordon": True}}, "a", "2"),  # a holds both: a restarted kubelet checks its node affinity again
        ({"conditions": [ready("False")]}, "a", "2"),
    ],
)
def test_the_label_counts_gpus_that_take_pods_or_that_a_pod_with_several_gpus_holds(
    second: dict[str, Any], held_by: str, count: str
) -> None:
    spec = second.pop("spec", {})
    gpus = [device(0, heldSlots=[slot("a")]), device(1, spec, heldSlots=[slot(held_by)], **second)]
    cluster = reconciled({"kind": "Node", "metadata": {"name": "node"}}, *gpus)
    assert cluster.objects["Node", "", "node"]["metadata"]["labels"]["orion.gpu/gpus"] == count


def test_the_same_message_after_another_state_is_a_new_event() -> None:
    cluster = reconciled(share(priority="hp"), pod("p"))
    first = set(cluster.events)
    cluster.put(pod("p", priority="hp"))
    Reconciler(cluster, state_of(cluster)).run()
    assert ("s", "ReadyGranted") in events(cluster)
    cluster.put(pod("p"))
    Reconciler(cluster, state_of(cluster)).run()
    assert events(cluster).count(("s", "ReadyPriorityMismatch")) == 2
    assert first < set(cluster.events)


def test_an_unreadable_share_changes_no_grant_and_is_reported() -> None:
    cluster = reconciled(share(memory={"limit": "1Gi"}), pinned("s"))
    cluster.put(share(memory={"limit": "1Gi"}, compute="heavy"))
    Reconciler(cluster, state_of(cluster)).run()
    assert condition(cluster, "Ready")[:2] == ("False", "Unreadable")
    assert grant_of(cluster) == ""  # the agent keeps the grant that it has
    assert ("p", "Unreadable") in events(cluster)


def test_the_example_shares_give_no_warning_in_mode_timeslice() -> None:
    """Every GPU starts in mode timeslice, so the examples must not set fields that have an effect in mode mps only."""
    shares = list(yaml.safe_load_all((EXAMPLES / "gpushare.yaml").read_text()))
    for each in shares:
        each["metadata"]["namespace"] = "n"
    pods = [pod("p", "serve", "hp"), pod("q", "train")]
    held = {"heldSlots": [slot("p", "hp-0", "serve"), slot("q", "be-0", "train")]}
    clients = [row("p", slot="hp-0", priority="hp"), row("q")]
    cluster = reconciled(*shares, *pods, device(0, **held, clients=clients))
    assert {each["metadata"]["name"] for each in shares} == {"serve", "train"}
    for each in shares:
        assert condition(cluster, "Degraded", each["metadata"]["name"])[:2] == ("False", "AsAsked")
        assert condition(cluster, "NotEnforced", each["metadata"]["name"])[:2] == ("False", "Enforced")
    assert [event.note for event in cluster.events.values() if event.warning] == []


GPU_NAME = UUID.format(0).lower()


def test_a_share_whose_pods_reserve_more_memory_than_their_gpu_has_is_not_ready() -> None:
    """Two pods with 60Gi each got slots of one GPU with 80Gi; the program of the second has failed."""
    memory = {"total": "80Gi", "reserved": "120Gi"}
    two = device(0, heldSlots=[slot("p1"), slot("p2", "be-1", clients=0)], memory=memory)
    alone = device(1, heldSlots=[slot("p3")], memory={"total": "80Gi", "reserved": "60Gi"})
    cluster = reconciled(share(memory={"limit": "60Gi"}), pod("p1"), pod("p2"), pod("p3"), two, alone)
    assert condition(cluster, "Ready") == (
        "False",
        "MemoryOverReserved",
        f"pod p2 (and 1 more) reserves 60Gi on {GPU_NAME} of node node, but the GPU's pods reserve 120Gi of 80Gi, "
        "so 20Gi are left for it and its allocations may fail; lower spec.memory to that, or delete the pod so that it "
        "can start on another GPU",
    )
    assert ("s", "ReadyMemoryOverReserved") in events(cluster)
    cluster.put(device(0, heldSlots=[slot("p1")], memory=memory | {"reserved": "60Gi"}))
    Reconciler(cluster, state_of(cluster)).run()
    assert condition(cluster, "Ready")[:2] == ("True", "Granted")


@pytest.mark.parametrize("memory", [None, {"total": "80Gi"}, {"total": "0", "reserved": "1Gi"}])
def test_a_share_is_ready_if_the_memory_of_its_gpu_is_not_known(memory: Any) -> None:
    cluster = reconciled(share(memory={"limit": "60Gi"}), pod("p"), device(heldSlots=[slot("p")], memory=memory))
    assert condition(cluster, "Ready")[:2] == ("True", "Granted")


def test_a_share_that_reserves_no_memory_is_ready_on_an_over_reserved_gpu() -> None:
    over = device(heldSlots=[slot("p")], memory={"total": "80Gi", "reserved": "120Gi"})
    assert condition(reconciled(share(), pod("p"), over), "Ready")[:2] == ("True", "Granted")


NOT_ENFORCED: dict[str, tuple[dict[str, Any], str, tuple[str, str, str]]] = {
    "several": (
        {"compute": {"request": 0.5, "limit": 0.5}, "slo": {"latency": "20ms"}, "smShare": 0.5},
        "timeslice",
        ("True", "NoPolicy", "enforces spec.slo and spec.smShare, in any mode; remove them"),
    ),
    "slo": ({"slo": {"latency": "20ms"}}, "mps", ("True", "NoPolicy", "enforces spec.slo, in any mode; remove it")),
    "smShare": ({"smShare": 0.5}, "mps", ("True", "NoPolicy", "enforces spec.smShare, in any mode")),
    "maxSlowdown": (
        {"maxSlowdown": 1.3},
        "timeslice",
        (
            "True",
            "ModeTimeslice",
            f"spec.maxSlowdown has an effect in mode mps only, and {GPU_NAME} is in mode timeslice; set spec.mode of "
            "the GPUDevice to mps, or remove it",
        ),
    ),
    "maxSlowdown in mps": ({"maxSlowdown": 1.3}, "mps", ("False", "Enforced", "")),
    "no overlap": ({"maxSlowdown": 1, "smShare": 1, "compute": {"limit": 0.5}}, "timeslice", ("False", "Enforced", "")),
    "tuning": (
        {"tuning": {"longKernel": "5ms", "overlapSMs": 8}},
        "timeslice",
        ("True", "ModeTimeslice", "spec.tuning.overlapSMs and spec.tuning.longKernel have an effect in mode mps only"),
    ),
    "slices": ({"tuning": {"beSlice": "200us"}}, "mps", ("True", "ModeMPS", "an effect in mode timeslice only")),
    "both": (
        {"slo": {"latency": "20ms"}, "maxSlowdown": 2},
        "timeslice",
        ("True", "NoPolicy", "remove it; spec.maxSlowdown has an effect in mode mps only"),
    ),
}


def test_requests_and_limits_of_be_have_their_effect() -> None:
    gpu = device(mode="timeslice", heldSlots=[slot("p", "be-0")])
    cluster = reconciled(share(compute={"request": 0.2, "limit": 0.5}), pod("p"), gpu)
    assert condition(cluster, "NotEnforced")[:2] == ("False", "Enforced")


@pytest.mark.parametrize("case", NOT_ENFORCED)
def test_a_field_without_an_effect_is_named_with_the_reason_and_the_mode(case: str) -> None:
    spec, mode, (state, reason, sentence) = NOT_ENFORCED[case]
    gpu = device(mode=mode, heldSlots=[slot("p", "hp-0")])
    cluster = reconciled(share(priority="hp", **spec), pod("p", priority="hp"), gpu)
    assert condition(cluster, "NotEnforced")[:2] == (state, reason)
    assert sentence in condition(cluster, "NotEnforced")[2]
    assert (("s", f"NotEnforced{reason}") in events(cluster)) is (state == "True")


def test_a_field_that_needs_a_mode_counts_only_on_a_gpu() -> None:
    cluster = reconciled(share(priority="hp", maxSlowdown=1.3), pod("p", priority="hp"))
    assert condition(cluster, "NotEnforced")[:2] == ("False", "Enforced")
