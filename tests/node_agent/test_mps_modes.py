"""How a GPU changes its mode. An agent serves one GPU, and the test acts as the MPS daemon."""

import os
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from orion.errors import Conflict
from orion.hook import layout
from orion.node_agent.agent import Agent
from orion.node_agent.mps.folder import MpsFolder, Phase, State
from orion.node_agent.mps.modes import Modes
from orion.node_agent.slots.claim import Claim
from tests.node_agent.one_gpu import GPU, agent_of_one_gpu

RUNS, FAILED = State(Phase.RUNNING, 1.0, 42), State(Phase.FAILED, 1.0, message="It broke.")


class Case:
    """An agent's modes; the test acts as the MPS daemon."""

    def __init__(self, agent: Agent) -> None:
        self.agent, self.modes = agent, agent.modes
        self.folder = MpsFolder(agent.root.path)
        self.lock: int | None = None

    def daemon_starts(self) -> None:
        self.lock = self.folder.take()
        assert self.lock is not None

    def daemon_ends(self) -> None:
        assert self.lock is not None
        os.close(self.lock)
        self.lock = None

    def daemon_reports(self, state: State | None) -> None:
        self.folder.make(GPU)
        self.folder.write_state(GPU, state)
        self.modes.look()

    def in_mps(self) -> None:
        self.daemon_starts()
        self.modes.want(GPU, "mps")
        assert self.asked
        self.daemon_reports(RUNS)
        assert self.modes.mode(GPU) == "mps"

    @property
    def asked(self) -> bool:
        return GPU in self.folder.wanted()

    @property
    def pending(self) -> str:
        found = self.modes.pending(GPU)
        return found.reason if found else ""

    @property
    def closed(self) -> str:
        return self.modes.verdict(GPU).reason

    def hold(self) -> None:
        """Let a living process hold a slot."""
        self.agent.slots.open(GPU, "be-0", layout.Role.BE, 0, os.getpid())

    def release(self) -> None:
        self.agent.gpu(GPU).shared_gpu.slot("be-0").owner = None
        self.modes.look()


@pytest.fixture
async def case() -> Iterator[Case]:  # type: ignore[misc]
    with agent_of_one_gpu() as agent:
        made = Case(agent)
        yield made
        if made.lock is not None:
            made.daemon_ends()


async def test_at_first_a_gpu_is_in_mode_timeslice(case: Case) -> None:
    assert (case.modes.mode(GPU), case.pending, case.closed) == ("timeslice", "", "")
    await case.modes.settled(GPU)


async def test_without_an_mps_daemon_the_gpu_stays_open_in_mode_timeslice(case: Case) -> None:
    case.modes.want(GPU, "mps")
    assert (case.modes.mode(GPU), case.pending, case.closed) == ("timeslice", "NotAvailable", "")
    assert not case.asked
    await case.modes.settled(GPU)
    case.daemon_starts()
    case.modes.look()
    assert case.asked


async def test_a_change_closes_the_gpu_until_the_control_daemon_runs(case: Case) -> None:
    case.daemon_starts()
    case.modes.want(GPU, "mps")
    assert (case.modes.mode(GPU), case.pending, case.closed) == ("timeslice", "Changing", "ModeChanging")
    case.daemon_reports(State(Phase.STARTING, 1.0))
    assert case.closed == "ModeChanging"
    case.daemon_reports(RUNS)
    assert (case.modes.mode(GPU), case.pending, case.closed) == ("mps", "", "")
    await case.modes.settled(GPU)


async def test_a_change_begins_when_no_slot_is_held(case: Case) -> None:
    case.daemon_starts()
    case.hold()
    case.modes.names = lambda uuid: ["pod team/chat", "pod team/train"]
    case.modes.want(GPU, "mps")
    assert (case.pending, case.closed) == ("ClientsPresent", "")
    pending = case.modes.pending(GPU)
    assert pending is not None
    assert "now: pod team/chat, pod team/train" in pending.message
    assert not case.asked
    case.release()
    assert case.asked


async def test_a_change_waits_for_a_claim_that_holds_a_slot_although_no_process_runs(case: Case) -> None:
    case.daemon_starts()
    slot = case.agent.slots.open(GPU, "be-0", layout.Role.BE, 0, os.getpid())
    slot.owner, slot.claim = None, Claim(uid="u", share="", namespace="team", name="train")
    case.modes.want(GPU, "mps")
    assert (case.modes.mode(GPU), case.pending, case.asked) == ("timeslice", "ClientsPresent", False)
    case.agent.claims.release("u")
    case.modes.look()
    assert case.asked


async def test_a_change_back_to_timeslice_works_in_the_same_way(case: Case) -> None:
    case.in_mps()
    case.hold()
    case.modes.want(GPU, "timeslice")
    assert (case.modes.mode(GPU), case.pending, case.closed) == ("mps", "ClientsPresent", "")
    case.release()
    assert not case.asked
    assert (case.pending, case.closed) == ("Changing", "ModeChanging")
    case.daemon_reports(State(Phase.STOPPING, 2.0))
    assert case.closed == "ModeChanging"
    case.daemon_reports(None)
    assert (case.modes.mode(GPU), case.pending, case.closed) == ("timeslice", "", "")


async def test_a_request_that_is_withdrawn_in_time_changes_nothing(case: Case) -> None:
    case.daemon_starts()
    case.hold()
    case.modes.want(GPU, "mps")
    case.modes.want(GPU, "timeslice")
    assert (case.pending, case.closed) == ("", "")


async def test_after_a_daemon_with_clients_died_no_container_starts_until_it_runs_again(case: Case) -> None:
    case.in_mps()
    case.hold()
    case.daemon_reports(replace(FAILED, failures=9))
    assert (case.modes.mode(GPU), case.pending, case.closed) == ("timeslice", "DaemonFailed", "ModeDaemonFailed")
    with pytest.raises(Conflict, match=r"does not let a container start now: .* It broke"):
        await case.modes.settled(GPU, 0.1)
    assert case.asked
    case.daemon_reports(RUNS)
    await case.modes.settled(GPU)
    case.daemon_ends()
    assert (case.modes.mode(GPU), case.pending, case.closed) == ("timeslice", "NotAvailable", "ModeNotAvailable")


async def test_a_failed_change_is_withdrawn_and_tried_again_later(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    case.daemon_starts()
    case.modes.want(GPU, "mps")
    case.daemon_reports(FAILED)
    assert (case.asked, case.closed) == (True, "ModeDaemonFailed")
    case.daemon_reports(replace(FAILED, failures=3))
    assert not case.asked
    case.daemon_reports(None)
    assert (case.modes.mode(GPU), case.pending, case.closed) == ("timeslice", "DaemonFailed", "")
    case.modes.look()
    assert not case.asked
    later = time.monotonic() + 60
    monkeypatch.setattr(time, "monotonic", lambda: later)
    case.modes.look()
    assert case.asked
    case.daemon_reports(RUNS)
    assert (case.modes.mode(GPU), case.pending) == ("mps", "")


async def test_the_gpu_stays_usable_after_the_mps_daemon_and_the_clients_ended(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    case.in_mps()
    case.daemon_ends()
    case.modes.look()
    assert case.closed == "ModeNotAvailable"
    later = time.monotonic() + 60
    monkeypatch.setattr(time, "monotonic", lambda: later)
    case.modes.look()
    assert (case.asked, case.closed, case.pending) == (False, "", "NotAvailable")


async def test_the_next_agent_continues_a_requested_change(case: Case) -> None:
    case.in_mps()
    case.hold()
    after = Modes(case.agent)
    assert after.mode(GPU) == "mps"
    await after.settled(GPU)
    after.want(GPU, "mps", before="mps")
    after.look()
    assert case.asked
    assert after.pending(GPU) is None


async def test_held_slots_do_not_keep_a_gpu_closed_if_its_mps_daemon_is_gone(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    case.in_mps()
    case.hold()
    (case.folder.clients(GPU) / "control").touch()
    case.daemon_ends()
    now = time.monotonic()
    assert case.closed
    monkeypatch.setattr(time, "monotonic", lambda: now + 600)
    case.modes.look()
    assert (case.asked, case.closed) == (False, "")
    assert not os.listdir(case.folder.clients(GPU))


@pytest.fixture
def in_cluster(case: Case, monkeypatch: pytest.MonkeyPatch) -> Case:
    """The first agent of a cluster's node since its boot, before it knows the requested mode."""
    case.agent.root.state.unlink()
    settings = case.agent.settings.model_copy(update={"node_name": "a-node"})
    monkeypatch.setattr(case.agent, "settings", settings)
    case.modes = Modes(case.agent)
    return case


async def test_after_a_reboot_a_gpu_returns_to_its_mode_even_with_held_slots(in_cluster: Case) -> None:
    in_cluster.daemon_starts()
    in_cluster.hold()
    in_cluster.modes.want(GPU, "mps", before="mps")
    assert in_cluster.asked
    in_cluster.daemon_reports(RUNS)
    await in_cluster.modes.settled(GPU)
    assert in_cluster.modes.mode(GPU) == "mps"


async def test_after_a_reboot_containers_wait_for_the_mps_daemon(in_cluster: Case) -> None:
    in_cluster.hold()
    in_cluster.modes.want(GPU, "mps", before="mps")
    assert (in_cluster.pending, in_cluster.closed) == ("NotAvailable", "ModeNotAvailable")
    with pytest.raises(Conflict, match="no MPS daemon runs on the node"):
        await in_cluster.modes.settled(GPU, 0.0)
    in_cluster.daemon_starts()
    in_cluster.modes.look()
    assert in_cluster.asked
    in_cluster.daemon_reports(RUNS)
    await in_cluster.modes.settled(GPU)
    assert in_cluster.modes.mode(GPU) == "mps"


async def test_after_a_reboot_without_an_mps_daemon_containers_start_after_a_while(
    in_cluster: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_cluster.hold()
    in_cluster.modes.want(GPU, "mps", before="mps")
    later = time.monotonic() + 600
    monkeypatch.setattr(time, "monotonic", lambda: later)
    await in_cluster.modes.settled(GPU)
    assert (in_cluster.modes.mode(GPU), in_cluster.closed) == ("timeslice", "")
    in_cluster.daemon_starts()
    in_cluster.modes.look()
    assert (in_cluster.asked, in_cluster.pending) == (False, "ClientsPresent")


async def test_after_a_container_has_started_the_previous_mode_waits_for_free_slots(in_cluster: Case) -> None:
    in_cluster.daemon_starts()
    in_cluster.hold()
    await in_cluster.modes.settled(GPU, patience=0.0)  # the API server was away: the container starts in mode timeslice
    in_cluster.modes.want(GPU, "mps", before="mps")
    assert not in_cluster.asked
    assert in_cluster.pending == "ClientsPresent"


async def test_a_new_request_after_a_start_waits_for_free_slots(in_cluster: Case) -> None:
    in_cluster.daemon_starts()
    in_cluster.hold()
    in_cluster.modes.want(GPU, "mps", before="timeslice")
    assert (in_cluster.asked, in_cluster.pending) == (False, "ClientsPresent")


@pytest.mark.quiet
async def test_starts_do_not_wait_if_there_was_an_agent_before(in_cluster: Case) -> None:
    in_cluster.agent.save_all()
    began = time.monotonic()
    await Modes(in_cluster.agent).settled(GPU)
    assert time.monotonic() - began < 0.3


async def test_in_a_cluster_a_start_waits_for_the_requested_mode(in_cluster: Case) -> None:
    began = time.monotonic()
    await in_cluster.modes.settled(GPU, 0.3)  # the API server does not answer: containers start anyway
    assert time.monotonic() - began >= 0.3
    in_cluster.modes.want(GPU, "timeslice")
    await in_cluster.modes.settled(GPU)


async def test_a_request_that_cannot_be_read_is_not_withdrawn(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    case.in_mps()
    with monkeypatch.context() as patched:
        patched.setattr(os, "listdir", lambda _: (_ for _ in ()).throw(OSError(24, "Too many open files")))
        with pytest.raises(OSError, match="Too many"):
            case.folder.wanted()
    assert case.asked
