"""Processes on a GPU without the hook: whose they are, when they count, and which Events are posted."""

import asyncio
import itertools
import os
import signal
import subprocess
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orion.node_agent.cluster.reporting import process_pods, unmanaged
from orion.node_agent.cluster.reporting.events import Subject
from orion.node_agent.cluster.reporting.process_pods import Process, look_up
from orion.node_agent.cluster.reporting.unmanaged import UnmanagedProcesses, rows
from orion.node_agent.gpus.interface import Gpu
from orion.node_agent.mps.folder import Phase, State
from orion.node_agent.slots.holders import Holder
from tests.waiting import DEADLINE

UUID = "GPU-00000000-0000-4000-8000-000000000000"
POD = "5e4f6a2c-0d1b-4c3a-9f8e-7b6a5d4c3b2a"


def _process(proc: Path, number: int, stat: str, cgroup: str = "0::/\n", thread: str = "") -> None:
    (proc / str(number) / "task" / "1").mkdir(parents=True)
    (proc / str(number) / "stat").write_text(stat)
    (proc / str(number) / "cgroup").write_text(cgroup)
    (proc / str(number) / "task" / "1" / "stat").write_text(thread)


def test_a_process_is_read_whatever_its_name(tmp_path: Path) -> None:
    rest = " ".join(map(str, range(4, 50)))
    _process(tmp_path, 7, f"7 (a) R (b\x01) S {rest}", f"0::/kubepods/pod{POD}/1\n")
    _process(tmp_path, 8, f"8 (gone) Z {rest}")
    _process(tmp_path, 9, "9 (cut")
    for number, state in ((11, "T"), (12, "t")):
        _process(tmp_path, number, f"{number} (a) {state} {rest}")
    found = [look_up(number, tmp_path) for number in (7, 11, 12)]
    assert found == [Process(7, 22, "a) R (b?", POD), Process(11, 22, "a", ""), Process(12, 22, "a", "")]
    assert [each and each.is_stopped for each in found] == [False, True, True]
    assert [look_up(number, tmp_path) for number in (8, 9, 10)] == [None, None, None]


def _stat(state: str, flags: int = 0, pending: int = 0) -> str:
    fields = [state, *map(str, range(4, 50))]
    fields[6], fields[28] = str(flags), str(pending)
    return f"7 (a) {' '.join(fields)}"


def test_a_process_that_the_kernel_still_takes_down_has_ended(tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        ended = Path(f"/proc/{process.pid}/stat").read_text()
    assert ") Z " in ended
    killed = 1 << (signal.SIGKILL - 1)
    threads = [_stat("D", pending=killed), _stat("D", 0x4), _stat("Z"), ""]
    for number, (first, other) in enumerate(itertools.product([ended.replace(") Z ", ") D "), *threads[:3]], threads)):
        _process(tmp_path, number, first, thread=other)
        assert look_up(number, tmp_path) is None


@pytest.mark.parametrize("first", [_stat("Z"), _stat("S", 0x4)])
def test_a_process_whose_first_thread_alone_has_ended_runs_on(tmp_path: Path, first: str) -> None:
    _process(tmp_path, 7, first, thread=_stat("S"))
    assert look_up(7, tmp_path) is not None


class World:
    """An agent, pods and Events, as far as unmanaged processes need them."""

    def __init__(self) -> None:
        self.here: dict[int, Process] = {}
        self.clients: dict[int, SimpleNamespace] = {}
        self.pods = {POD: Holder("team", "train-0", "", POD)}
        self.control: State | None = None
        self.posted: list[tuple[str, str, str]] = []
        self.changes = 0
        shared_gpu = SimpleNamespace(gpu=Gpu(UUID, 0, "NVIDIA H200", 1), clients=self.clients)
        self.gpus = {UUID: SimpleNamespace(shared_gpu=shared_gpu)}
        self.modes = SimpleNamespace(folder=SimpleNamespace(state=lambda uuid: self.control))
        self.source = SimpleNamespace(process_ids=lambda gpu: list(self.here))

    def pod(self, uid: str) -> Holder | None:
        return self.pods.get(uid)

    def post(self, about: Subject, reason: str, note: str, **more: Any) -> None:
        self.posted.append((about.kind, about.name, reason))

    def changed(self) -> None:
        self.changes += 1


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(process_pods, "look_up", made.here.get)
    return made


def look(world: World, *, grace: float = 0.0, unnamed: float = 0.0, times: int = 1) -> list[dict[str, Any]]:
    async def scenario() -> list[dict[str, Any]]:
        made: Any = world
        found = UnmanagedProcesses(made, made, made, "a-node", world.changed)
        found._begun -= unmanaged._RETURN_SECONDS
        for _ in range(times):
            await found.look()
        return [row.plain() for row in rows(found.of(UUID))]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unmanaged, "_GRACE_SECONDS", grace)
        patch.setattr(unmanaged, "_NAME_SECONDS", unnamed)
        return asyncio.run(scenario())


def test_a_process_without_the_hook_gets_an_event_on_its_pod_or_the_node(world: World) -> None:
    world.here.update({number: Process(number, 1, "python", uid) for number, uid in ((5, ""), (6, POD), (7, "other"))})
    world.here[8] = Process(8, 1, "python", POD)
    world.clients[0] = SimpleNamespace(process_id=8)
    assert look(world) == [
        {"processId": 5, "command": "python"},
        {"processId": 6, "command": "python", "pod": {"namespace": "team", "name": "train-0", "uid": POD}},
        {"processId": 7, "command": "python", "podUid": "other"},
    ]
    reason = "ProcessWithoutHook"
    assert world.posted == [("Node", "a-node", reason), ("Pod", "train-0", reason), ("Node", "a-node", reason)]


def test_an_event_waits_for_the_name_of_a_pod_that_is_not_known_yet(world: World) -> None:
    world.here[7] = Process(7, 1, "python", "other")
    assert look(world, unnamed=3600) == [{"processId": 7, "command": "python", "podUid": "other"}]
    assert world.posted == []
    world.pods["other"] = Holder("team", "tool", "", "other")
    [row] = look(world, unnamed=3600)
    assert row["pod"] == {"namespace": "team", "name": "tool", "uid": "other"}
    assert world.posted == [("Pod", "tool", "ProcessWithoutHook")]


def test_a_process_has_time_to_join_and_changes_are_reported_once(world: World) -> None:
    world.here[5] = Process(5, 1, "python", "")
    assert look(world, grace=3600) == []
    assert world.changes == 1  # the list changed from "not known" to "none"
    world.changes = 0
    assert len(look(world, times=3)) == 1
    assert world.changes == 1


async def test_a_process_that_is_stopped_since_the_agents_start_has_time_to_join_once_it_continues(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: Any = world
    found = UnmanagedProcesses(made, made, made, "a-node", world.changed)

    async def reported(**stopped: bool) -> list[int]:
        for number in (5, 6):
            world.here[number] = Process(number, 1, "python", "", stopped.get(f"p{number}", False))
        await found.look()
        return [row.process_id for row in rows(found.of(UUID))]

    monkeypatch.setattr(unmanaged, "_GRACE_SECONDS", 0.0)
    assert await reported(p5=True) == []
    found._begun -= unmanaged._RETURN_SECONDS
    assert await reported(p5=True) == [6]
    assert await reported(p5=True, p6=True) == [6]  # a process that stops later does not evade by that
    monkeypatch.setattr(unmanaged, "_GRACE_SECONDS", 3600.0)
    assert await reported() == []
    monkeypatch.setattr(unmanaged, "_GRACE_SECONDS", 0.0)
    assert await reported(p5=True, p6=True) == [5, 6]


async def test_a_driver_that_hangs_for_one_gpu_says_what_is_on_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unmanaged, "_ANSWER_SECONDS", 0.05)
    monkeypatch.setattr(unmanaged, "_GRACE_SECONDS", 0.0)
    answers, hangs = threading.Event(), "GPU-hangs"
    answers.set()
    second = SimpleNamespace(gpu=Gpu(hangs, 1, "NVIDIA H200", 1), clients={})
    world.gpus = {hangs: SimpleNamespace(shared_gpu=second), **world.gpus}

    def process_ids(gpu: Gpu) -> list[int]:
        assert gpu.uuid == UUID or answers.wait(DEADLINE)
        return list(world.here)

    world.source.process_ids = process_ids
    made: Any = world
    found = UnmanagedProcesses(made, made, made, "a-node", world.changed)
    found._begun -= unmanaged._RETURN_SECONDS

    async def until(uuid: str, *expected: int) -> None:
        async with asyncio.timeout(DEADLINE):
            while [row.process_id for row in rows(found.of(uuid))] != list(expected):
                await found.look()
                await asyncio.sleep(0)

    world.here[5] = Process(5, 1, "python", "", is_stopped=False)
    await until(hangs, 5)
    answers.clear()
    world.here[6] = Process(6, 1, "python", "")
    await until(UUID, 5, 6)
    assert [row.process_id for row in rows(found.of(hangs))] == [5]
    answers.set()
    await until(hangs, 5, 6)


@pytest.mark.parametrize("name", ["nvidia-cuda-mps", "orion-switching"])
@pytest.mark.parametrize(("of_daemon", "others"), [("the-daemons", [6, 7]), ("", [5, 6])], ids=["in-a-pod", "in-none"])
def test_processes_of_the_mps_daemon_are_managed_but_others_of_that_name_are_not(
    world: World, name: str, of_daemon: str, others: list[int]
) -> None:
    for number, uid in ((5, "the-daemons"), (6, POD), (7, "")):
        world.here[number] = Process(number, 1, name, uid)
    assert [row["processId"] for row in look(world)] == [5, 6, 7]
    world.here[4] = Process(4, 1, "nvidia-cuda-mps", of_daemon)
    world.control = State(Phase.RUNNING, 1.0, process_id=4)
    assert [row["processId"] for row in look(world)] == others
    world.control = State(Phase.FAILED, 2.0)
    assert [row["processId"] for row in look(world)] == [4, 5, 6, 7]
