"""The status that an agent writes into a GPUDevice, and when it writes it. These tests use plain values only."""

from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orion.crds.conditions import Condition as DeviceCondition
from orion.crds.device import GPUDeviceSpec
from orion.crds.device_status import GPUDeviceStatus
from orion.crds.grant import GrantedPolicy
from orion.crds.policy import Mode, Priority
from orion.hook import layout
from orion.node_agent.advertising.advertising import Verdict
from orion.node_agent.cluster.reporting import process_pods
from orion.node_agent.cluster.reporting.client_ratios import ClientRatios
from orion.node_agent.cluster.reporting.device_events import post_changes
from orion.node_agent.cluster.reporting.device_status import gone_status, status_of
from orion.node_agent.cluster.reporting.events import Subject, device
from orion.node_agent.cluster.reporting.gpu_devices import read
from orion.node_agent.cluster.reporting.process_pods import Process
from orion.node_agent.cluster.reporting.seen import Seen
from orion.node_agent.cluster.reporting.status_urgency import Urgency, urgency
from orion.node_agent.cluster.reporting.unmanaged import Found
from orion.node_agent.cluster.state import Asking, GpuState, HolderState, PolicyState, Problem
from orion.node_agent.gpus.interface import Gpu
from orion.node_agent.mps.pending import Pending
from orion.node_agent.pages import client_pages, policy_words
from orion.node_agent.pages.agent_pages import Grant
from orion.node_agent.sharing.conditions import Condition
from orion.node_agent.sharing.usage import Parts, SlotUsage, Totals
from orion.node_agent.slots.holders import Holder
from orion.node_agent.snapshots import ClientView, GpuView, SlotView

UUID = "GPU-00000000-0000-4000-8000-000000000000"
GIB, MIB = 1 << 30, 1 << 20
PAGE = policy_words.DEFAULT
HOLDER = Holder("team", "train-0", "main", "uid-of-train-0")
EMPTY = client_pages.Record(
    **{each.name: 0 for each in fields(client_pages.Record)} | {"wait_bucket": (), "long_kernel_name": ""}  # type: ignore[arg-type]
)


def client(number: int = 1, state: str = "running", **changes: Any) -> ClientView:
    reported = tuple(Condition(reason, message, 0.0) for reason, message in changes.pop("reported", {}).items())
    busy_ns = changes.pop("busy_ns", 0)
    return ClientView(
        number, number, 1000 + number, "python", state, reported, 5.0, busy_ns, 0, 0, replace(EMPTY, **changes)
    )


def seen(
    *clients: ClientView, held: tuple[HolderState, ...] = (), role: Priority = Priority.BE, **changes: Any
) -> Seen:
    slot = SlotView(UUID, f"{role}-0", layout.Role[role.name], "/", Grant(layout.Role.BE, 0, 0), 0, 0, clients)
    view = GpuView(Gpu(UUID, 3, "NVIDIA H200", 141 * GIB), PAGE, 0.0, changes.pop("used", 0), (slot,), ())
    state = GpuState(UUID, {Priority.HP: 1, Priority.BE: 8}, held, changes.pop("policy", PolicyState(PAGE)))
    ratios = changes.pop("ratios", {})
    made = Seen("a-node", GPUDeviceSpec(), 4, view, state, Verdict(), 0.0, (), Mode.TIMESLICE, None, ratios, "1.0")
    return replace(made, **changes)


def using(debt_ns: float = 0.0, seconds: float = 10.0, **figures: float) -> Seen:
    """Return a GPU with a held slot that has used the GPU for a while."""
    made = seen(client(), held=(HolderState(UUID, "be-0", Priority.BE, HOLDER, request_milli=400),))
    usage = SlotUsage(recent=Parts(seconds, Totals(**figures)))
    slots = tuple(replace(slot, usage=usage, debt_ns=debt_ns) for slot in made.view.slots)
    return replace(made, view=replace(made.view, slots=slots))


def conditions(status: GPUDeviceStatus) -> dict[str, tuple[str, str]]:
    return {each.type: (each.status, each.reason) for each in status.conditions or ()}


def test_a_gpu_without_clients_is_ready() -> None:
    status = status_of(seen(), [])
    assert (status.node, status.uuid, status.index, status.health) == ("a-node", UUID, 3, "Healthy")
    assert (status.observed_generation, status.mode, status.client_count) == (4, Mode.TIMESLICE, 0)
    assert status.policy is not None
    assert status.policy.plain() == {"name": "orion", "maxSlowdown": 1, "request": 1, "window": "400us"}
    assert conditions(status) == {
        "Ready": ("True", "Advertised"),
        "HookInjected": ("Unknown", "NoClients"),
        "ModePending": ("False", "InMode"),
        "PolicyConflict": ("False", "Agreed"),
        "Degraded": ("False", "AsPromised"),
    }


def test_pods_that_share_a_slot_are_reported_and_each_process_has_its_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = Holder("team", "first", "", "uid-first"), Holder("team", "second", "", "uid-second")
    slot = HolderState(UUID, "be-0", Priority.BE, first, claim="both", sharing=(second,))
    uids = {1001: "uid-first", 1002: "uid-second"}
    monkeypatch.setattr(process_pods, "look_up", lambda process_id: Process(process_id, 1, "x", uids[process_id]))
    status = status_of(seen(client(1), client(2), held=(slot,)), []).plain()
    (row,) = status["heldSlots"]
    assert (row["pod"]["name"], [each["name"] for each in row["sharedWith"]]) == ("first", ["second"])
    assert {each["processId"]: each["pod"]["name"] for each in status["clients"]} == {1001: "first", 1002: "second"}


VERDICTS = [
    (Verdict(), "Healthy", ("True", "Advertised")),
    (Verdict(False, reason="GPULost", message="It is lost."), "Unhealthy", ("False", "GPULost")),
    (Verdict(False, reason="GPUGone", message="It is gone."), "Unknown", ("Unknown", "GPUGone")),
    (Verdict(cordoned=True, reason="Cordoned", message="By people."), "Healthy", ("False", "Cordoned")),
    (Verdict(False, True, "AdvertisedByAnother", "By another."), "Unhealthy", ("False", "AdvertisedByAnother")),
]


@pytest.mark.parametrize(("verdict", "health", "ready"), VERDICTS, ids=range(len(VERDICTS)))
def test_health_and_readiness_follow_the_verdict(verdict: Verdict, health: str, ready: tuple[str, str]) -> None:
    status = status_of(seen(verdict=verdict), [])
    assert (status.health, conditions(status)["Ready"]) == (health, ready)


def test_holders_and_clients_of_a_slot_are_reported() -> None:
    slot = HolderState(
        UUID, "be-0", Priority.BE, HOLDER, "nightly", "u", 7, 8 * GIB, 6 * GIB, 400, 300, 500,
        problems=(Problem("RoleDiffers", "its grant is for hp"),),
    )  # fmt: skip
    worker = client(memory_bytes=5 * MIB - 1, slowdown_milli=1_234, reported={"LongKernels": "runs kernels of 9 ms"})
    status = status_of(seen(worker, held=(slot,), used=9 * MIB), []).plain()
    pod = {"namespace": "team", "name": "train-0", "uid": "uid-of-train-0", "container": "main"}
    assert status["time"] == {"reserved": 0.3}
    assert status["heldSlots"] == [
        {"name": "be-0", "priority": "be", "pod": pod, "share": "nightly", "shareUid": "u", "generation": 7,
         "memoryLimit": "8Gi", "memoryRequest": "6Gi", "computeRequest": 0.4, "computeLimit": 0.5, "clients": 1}
    ]  # fmt: skip
    memory = {"total": "141Gi", "used": "9Mi", "reserved": "6Gi", "reserve": "0", "borrowed": "0", "returnable": "0"}
    assert status["memory"] == memory
    assert status["slots"] == {"hp": {"total": 1, "held": 0}, "be": {"total": 8, "held": 1}}
    (row,) = status["clients"]
    assert row == {
        "pod": pod, "slot": "be-0", "priority": "be", "processId": 1001, "command": "python", "state": "running",
        "memory": "5Mi", "slowdown": 1.23, "message": "runs kernels of 9 ms",
    }  # fmt: skip
    degraded = next(each for each in status["conditions"] if each["type"] == "Degraded")
    assert (degraded["status"], degraded["reason"]) == ("True", "RoleDiffers")
    assert degraded["message"] == "pod team/train-0: its grant is for hp; and 1 more"


def test_the_gpu_time_of_a_slot_is_reported_beside_its_request() -> None:
    made = using(due=0.4004, charged=0.396, measured=0.3, waited=1.0, wanted=1.0, debt_ns=260_000_000)
    (slot,) = status_of(made, []).plain()["heldSlots"]
    assert slot["computeRequest"] == 0.4
    assert slot["usage"] == {"due": 0.4, "charged": 0.4, "measured": 0.3, "waited": 1, "debt": "300ms"}


def test_the_gpu_time_of_a_slot_that_has_just_begun_is_not_reported() -> None:
    (slot,) = status_of(using(seconds=3.0, due=0.4), []).plain()["heldSlots"]
    assert "usage" not in slot


def test_unmanaged_processes_pending_modes_and_conflicts_are_conditions() -> None:
    asking = [Asking(replace(HOLDER, pod=name), "hp-0", f"team/{name}", GrantedPolicy()) for name in ("a", "b")]
    unmanaged = (Found(Process(42, 1, "python", ""), None), Found(Process(43, 1, "python", "u"), HOLDER))
    policy = PolicyState(PAGE, asking[0], (asking[1],))
    status = status_of(seen(unmanaged=unmanaged, policy=policy, mode_pending=Pending("NotAvailable", "No.")), [])
    found = conditions(status)
    assert found["HookInjected"] == ("False", "Unmanaged")
    assert found["ModePending"] == ("True", "NotAvailable")
    assert found["PolicyConflict"] == ("True", "OtherShare")
    assert status.unmanaged_process_count == 2
    assert status.policy is not None
    assert (status.policy.share, status.policy.conflicting) == ("team/a", ["team/b"])
    assert [each.plain() for each in status.unmanaged or ()] == [
        {"processId": 42, "command": "python"},
        {"processId": 43, "command": "python",
         "pod": {"namespace": "team", "name": "train-0", "uid": "uid-of-train-0"}},
    ]  # fmt: skip


def test_clients_with_problems_come_first_and_at_most_64_are_listed() -> None:
    fine = [client(number) for number in range(1, 100)]
    slow = client(200, slowdown_milli=1_500)
    stopped = client(201, "stopped")
    reported = client(202, reported={"ContextLost": "lost its context"})
    status = status_of(seen(*fine, slow, stopped, reported), [])
    assert status.client_count == 102
    assert status.clients is not None
    assert len(status.clients) == 64
    assert [row.process_id for row in status.clients[:4]] == [1202, 1201, 1200, 1001]


def test_ratios_cover_the_last_seconds() -> None:
    ratios = ClientRatios()
    assert ratios.take(seen(client(gpu_ns=0)).view, 100.0)[1, 1].busy is None
    assert ratios.take(seen(client(gpu_ns=10**9)).view, 105.0)[1, 1].busy is None
    later = ratios.take(seen(client(gpu_ns=5 * 10**9, gated_ns=2 * 10**9)).view, 110.0)
    assert (later[1, 1].busy, later[1, 1].gated) == (0.5, 0.2)
    wrong = ratios.take(seen(client(gpu_ns=0, gated_ns=10**19)).view, 120.0)
    assert (wrong[1, 1].busy, wrong[1, 1].gated) == (0.0, 1.0)
    assert ratios.take(seen().view, 121.0) == {}
    of_hp = seen(client(busy_ns=5), role=Priority.HP)
    assert ratios.take(of_hp.view, 130.0)[1, 1].gated is None


NUMBERS = st.integers(0, 2**64 - 1)
RECORDS = st.fixed_dictionaries(
    dict.fromkeys(("memory_bytes", "slowdown_milli", "gpu_ns", "gated_ns", "long_kernel_ns"), NUMBERS)
)
TEXT = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=1_500)


@settings(max_examples=50)
@given(st.lists(RECORDS, min_size=1, max_size=3), TEXT, st.sampled_from(["idle", "gated", "stopped", "x" * 40]))
def test_the_api_accepts_the_status_whatever_a_client_writes(
    records: list[Mapping[str, int]], text: str, state: str
) -> None:
    clients = [client(number, state, reported={"Reported": text}, **record) for number, record in enumerate(records)]
    ratios = ClientRatios()
    ratios.take(seen(*(client(number) for number in range(len(records)))).view, 0.0)
    made = seen(*clients, ratios=ratios.take(seen(*clients).view, 60.0))
    plain = status_of(made, []).plain()
    assert GPUDeviceStatus.read_strictly(plain, "status").plain() == plain


# -- Transition times and writes ---------------------------------------------------------------------------------------


def test_a_condition_keeps_its_time_until_its_status_changes() -> None:
    early, late = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)
    first = status_of(seen(), [], early)
    lost = Verdict(False, reason="GPULost", message="It is lost.")
    second = status_of(seen(verdict=lost), first.conditions or [], late)
    times = {each.type: each.last_transition_time for each in second.conditions or ()}
    assert times.pop("Ready") == "2026-01-02T00:00:00Z"
    assert set(times.values()) == {"2026-01-01T00:00:00Z"}


def test_the_status_of_a_gone_gpu_is_unknown_and_keeps_its_description() -> None:
    before = status_of(seen(client()), [])
    status = gone_status(before, "GPUGone", "It is gone.", 5)
    assert (status.node, status.model, status.health) == ("a-node", "NVIDIA H200", "Unknown")
    assert conditions(status) == {"Ready": ("Unknown", "GPUGone"), "HookInjected": ("Unknown", "GPUGone")}
    assert (status.held_slots, status.clients, status.policy) == (None, None, None)


FOUND = Found(Process(42, 1, "python", ""), None)
SLOT = HolderState(UUID, "be-0", Priority.BE, HOLDER)
WORTH = [
    (seen(), seen(), None),
    (seen(), seen(generation=5), Urgency.CHANGES),
    (seen(), seen(verdict=Verdict(False, reason="X", message="y")), Urgency.CHANGES),
    (seen(), seen(held=(SLOT,)), Urgency.CHANGES),
    (seen(), seen(client()), Urgency.CHANGES),
    (seen(held=(SLOT,)), seen(client(), held=(SLOT,)), Urgency.CHANGES),
    (seen(client(), held=(SLOT,)), seen(held=(SLOT,)), Urgency.COUNTS),
    (seen(held=(SLOT,)), seen(client(), held=(replace(SLOT, share="s"),)), Urgency.CHANGES),
    (seen(client()), seen(client(reported={"ContextLost": "lost"})), Urgency.CHANGES),
    (seen(client(), unmanaged=(FOUND,)), seen(client()), Urgency.CHANGES),
    (seen(), seen(unmanaged=(FOUND,)), Urgency.CHANGES),
    (seen(), seen(used=63 * MIB), None),
    (seen(), seen(used=64 * MIB), Urgency.FIGURES),
    (seen(used=100 * GIB), seen(used=109 * GIB), None),
    (seen(), seen(hp_busy_ratio=0.04), None),
    (seen(), seen(hp_busy_ratio=0.05), Urgency.FIGURES),
    (seen(client()), seen(client(state="gated")), None),
    (seen(client()), seen(client(state="stopped")), Urgency.FIGURES),
    (seen(client()), seen(client(memory_bytes=GIB)), Urgency.FIGURES),
    (seen(client(slowdown_milli=1_100)), seen(client(slowdown_milli=1_120)), None),
    (using(), using(), None),
    (using(due=0.4, waited=0.6), using(due=0.44, waited=0.56, debt_ns=4e8), None),
    (using(due=0.4), using(due=0.46), Urgency.FIGURES),
    (using(waited=0.4), using(waited=0.3), Urgency.FIGURES),
    (using(), using(debt_ns=6e8), Urgency.FIGURES),
    (using(seconds=2.0), using(), Urgency.FIGURES),
    (seen(client(slowdown_milli=1_100)), seen(client(slowdown_milli=1_200)), Urgency.FIGURES),
]


@pytest.mark.parametrize(("old", "new", "worth"), WORTH, ids=range(len(WORTH)))
def test_changes_are_written_at_once_and_figures_rarely(old: Seen, new: Seen, worth: Urgency | None) -> None:
    before = status_of(old, [])
    after = status_of(new, before.conditions or [])
    assert urgency(before.plain(), after.plain()) == worth


# -- More memory reserved than the GPU has -----------------------------------------------------------------------------


def reserving(*gib: int) -> tuple[HolderState, ...]:
    """Return slots of pods that reserve this much memory."""
    return tuple(
        HolderState(
            UUID, f"be-{number}", Priority.BE, replace(HOLDER, pod=f"p{number}"), memory_request_bytes=each * GIB
        )
        for number, each in enumerate(gib)
    )


def degraded(status: GPUDeviceStatus) -> DeviceCondition:
    return next(each for each in status.conditions or () if each.type == "Degraded")


def test_memory_that_is_reserved_completely_is_no_problem() -> None:
    assert degraded(status_of(seen(held=reserving(100, 41)), [])).reason == "AsPromised"


def test_over_reserved_memory_degrades_a_gpu() -> None:
    reported = seen(client(reported={"ContextLost": "lost its context"}), held=reserving(1, 0, 80, 2, 60))
    found = degraded(status_of(reported, []))
    assert (found.status, found.reason) == ("True", "MemoryOverReserved")
    assert "reserve 146432 MiB of 144384 MiB, 2048 MiB more than it has" in found.message
    assert "pod team/p2 81920 MiB, pod team/p4 61440 MiB, pod team/p3 2048 MiB and 1 more; and 1 more" in found.message


def test_scaled_requests_degrade_a_gpu_and_hide_no_other_problem() -> None:
    scaled = (Condition("RequestsScaled", "be-0 asks for 0.8 and gets 0.667", 0.0),)
    for clients, reason in (((), "RequestsScaled"), ((client(reported={"ContextLost": "lost"}),), "ContextLost")):
        reported = seen(*clients)
        found = degraded(status_of(replace(reported, view=replace(reported.view, conditions=scaled)), []))
        assert (found.status, found.reason) == ("True", reason)


def test_a_gpu_of_unknown_memory_size_is_not_over_reserved() -> None:
    reported = seen(held=reserving(1))
    unknown = replace(reported, view=replace(reported.view, gpu=replace(reported.view.gpu, memory_bytes=0)))
    assert degraded(status_of(unknown, [])).reason == "AsPromised"


def test_over_reserved_memory_gets_an_event_even_if_there_is_another_problem() -> None:
    class Posted:
        """Collects the posted Events."""

        def __init__(self) -> None:
            self.events: list[tuple[str, str, str]] = []

        def post(self, about: Subject, reason: str, note: str, *, warning: bool = True, key: str | None = None) -> None:
            self.events.append((about.kind, reason, note))

    posted = Posted()
    events: Any = posted
    lost = client(reported={"ContextLost": "lost its context"})
    before = status_of(seen(lost, held=reserving(141)), [])
    plain = {"metadata": {"name": UUID.lower(), "uid": "u", "resourceVersion": "1"}, "status": before.plain()}
    known = read(plain)
    post_changes(
        events, device(UUID, "u"), known, status_of(seen(lost, held=reserving(141, 1)), known.status.conditions or [])
    )
    ((kind, reason, note),) = posted.events
    assert (kind, reason) == ("GPUDevice", "MemoryOverReserved")
    assert note.startswith(f"{UUID}: its pods reserve ")


def test_a_spec_of_a_later_version_keeps_pods_away_and_changes_no_mode() -> None:
    meta = {"name": "gpu-1", "uid": "1", "resourceVersion": "1"}
    later = {"cordon": True, "mode": "of-tomorrow"}
    found = read({"metadata": meta, "spec": later, "status": {"node": "a", "mode": "mps"}})
    assert (found.spec.cordon, found.spec.mode) == (True, "mps")
    assert read({"metadata": meta, "spec": {"mode": 7}, "status": {}}).spec.mode == "timeslice"
