"""What the operator writes about a share: rows, counts, conditions, and Events with their sentences."""

import re
from typing import Any

import pytest

from orion.api_server.events import short_note
from orion.crds.device_status import SHARING_MAX
from orion.operator.reconciler.decisions import decide
from orion.operator.reconciler.writes import PostEvent, Remember
from tests.operator.fake_cluster import NOW, Body, FakeCluster, Reconciler, state_of, take
from tests.operator.share_objects import (
    NODE,
    POD,
    SINCE,
    UUID,
    condition,
    device,
    events,
    pod,
    reconciled,
    row,
    share,
    slot,
    status,
    unmanaged,
)


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


def test_the_grant_of_an_earlier_share_of_the_same_name_does_not_count() -> None:
    cluster = reconciled(share(), pod("p"), device(heldSlots=[slot("p") | {"shareUid": "an earlier one"}]))
    assert condition(cluster, "Ready")[:2] == ("False", "GrantsPending")
    uid = cluster.objects["GPUShare", "n", "s"]["metadata"]["uid"]
    cluster.put(device(heldSlots=[slot("p") | {"shareUid": uid}]))
    Reconciler(cluster, state_of(cluster)).run()
    assert condition(cluster, "Ready")[:2] == ("True", "Granted")


def test_a_running_pod_of_which_no_agent_has_reported_anything_does_not_have_its_grant() -> None:
    cluster = reconciled(share(), pod("p"), pod("q"), pod("waits", running=False), device(heldSlots=[slot("p")]))
    assert condition(cluster, "Ready")[:2] == ("False", "GrantsPending")
    assert status(cluster)["pods"]["granted"] == 2
    cluster.put(pod("q", deletionTimestamp="2026-01-01T00:00:00Z"))  # its slot may be free before the pod is gone
    Reconciler(cluster, state_of(cluster)).run()
    assert condition(cluster, "Ready")[:2] == ("True", "Granted")


@pytest.mark.parametrize(("share_of_holder", "sharers"), [("s", 1), ("other", 1), ("s", SHARING_MAX)])
def test_a_pod_that_shares_a_claim_is_reported_with_the_slot_of_another_pod(share_of_holder: str, sharers: int) -> None:
    """A row names 16 of the pods that share it, so then it may stand for more."""
    others = [{"namespace": "n", "name": f"q{number}"} for number in range(sharers)]
    held = slot("p", share=share_of_holder) | {"sharedWith": others}
    pods = [pod(f"q{number}") for number in range(sharers + (sharers == SHARING_MAX))]
    cluster = reconciled(share(), share("other"), pod("p", app=share_of_holder), *pods, device(heldSlots=[held]))
    assert condition(cluster, "Ready")[:2] == ("True", "Granted")


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


def test_another_shares_policy_on_the_gpu_is_a_conflict_if_the_agent_says_so() -> None:
    chat = share(priority="hp", policy="gate")
    held: dict[str, Any] = {"heldSlots": [slot("p", "hp-0")]}
    other = {"name": "none", "share": "n/other", "conflicting": ["n/third"]}
    cluster = reconciled(chat, pod("p", priority="hp"), device(**held, policy=other))
    assert condition(cluster, "PolicyConflict")[:2] == ("False", "Applied")
    cluster = reconciled(chat, pod("p", priority="hp"), device(**held, policy=other | {"conflicting": ["n/s"]}))
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


def test_the_same_message_after_another_state_is_a_new_event() -> None:
    cluster = reconciled(share(priority="hp"), pod("p"), device(heldSlots=[slot("p", "hp-0")]))
    first = set(cluster.events)
    cluster.put(pod("p", priority="hp"))
    Reconciler(cluster, state_of(cluster)).run()
    assert ("s", "ReadyGranted") in events(cluster)
    cluster.put(pod("p"))
    Reconciler(cluster, state_of(cluster)).run()
    assert events(cluster).count(("s", "ReadyPriorityMismatch")) == 2
    assert first < set(cluster.events)
