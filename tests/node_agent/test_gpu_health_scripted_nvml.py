"""What the agent makes of a driver that fails: of a scripted NVML, as there is none where this runs."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orion.node_agent.api.client import AgentClient
from orion.node_agent.gpus import factory
from orion.node_agent.gpus.hysteresis import Hysteresis, Patience
from orion.node_agent.gpus.interface import HEALTHY, Gpu, GpusUnavailable, Health
from orion.node_agent.gpus.keeper import GONE, HealthKeeper
from orion.node_agent.gpus.nvml import NvmlGpus
from orion.node_agent.gpus.remembering import RememberingGpus
from orion.node_agent.gpus.xids import CAUSED_BY_PROGRAMS
from tests.node_agent import scripted_nvml
from tests.node_agent.conftest import AgentProcess
from tests.node_agent.scripted_nvml import ScriptedGpu, ScriptedNvml, uuid


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> ScriptedNvml:
    library = ScriptedNvml(ScriptedGpu(peers=(1,)), ScriptedGpu(peers=(0,)), ScriptedGpu())
    monkeypatch.setitem(sys.modules, "pynvml", library)
    return library


@pytest.fixture
def pci(tmp_path: Path) -> Path:
    for name, node in (("0000:30:00.0", "1"), ("0000:31:00.0", "-1")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "numa_node").write_text(f"{node}\n")
    return tmp_path


def test_gpus_come_with_their_place_in_the_machine(nvml: ScriptedNvml, pci: Path) -> None:
    gpus = NvmlGpus(pci).find()
    assert gpus[0] == Gpu(uuid(0), 0, "NVIDIA H200", 100, minor=4, numa_node=1, linked=(uuid(1),))
    assert [(each.numa_node, each.linked) for each in gpus[1:]] == [(None, (uuid(0),)), (None, ())]


def test_errors_of_programs_say_nothing_of_the_gpu_and_others_do_once(nvml: ScriptedNvml) -> None:
    source = NvmlGpus()
    first, second, _ = source.find()
    nvml.events = [(0, scripted_nvml.XID, number) for number in sorted(CAUSED_BY_PROGRAMS)]
    assert source.health(first) == source.health(second) == HEALTHY
    nvml.events = [(1, scripted_nvml.XID, 79)]
    assert source.health(first) == HEALTHY
    told = source.health(second)
    assert (told.healthy, told.reason, told.critical) == (False, "Xid79", True)
    assert "fallen off the bus" in told.message
    assert source.health(second) == HEALTHY
    nvml.events = [(0, scripted_nvml.DOUBLE_BIT, 0)]
    assert source.health(first).reason == "Xid48"


TROUBLE = [
    (scripted_nvml.LOST, "GPULost", True),
    (scripted_nvml.RESET_REQUIRED, "ResetRequired", True),
    (scripted_nvml.MISMATCH, "DriverReplaced", True),
    (scripted_nvml.UNKNOWN, "DriverError", False),
]


@pytest.mark.parametrize(("number", "reason", "critical"), TROUBLE)
def test_what_a_driver_answers_about_one_gpu_concerns_that_one(
    nvml: ScriptedNvml, number: int, reason: str, critical: bool
) -> None:
    source = NvmlGpus()
    first, second, _ = source.find()
    nvml.gpus[0].trouble = number
    told = source.health(first)
    assert (told.healthy, told.reason, told.critical) == (False, reason, critical)
    assert (source.memory_used_bytes(first), source.process_ids(first)) == (0, [])
    assert source.health(second) == HEALTHY
    assert [each.uuid for each in source.find()] == [uuid(1), uuid(2)]


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        (scripted_nvml.NO_ACTION, ""),
        (scripted_nvml.DRAIN_P2P, ""),
        (scripted_nvml.RESET, "ResetRequired"),
        (scripted_nvml.REBOOT, "RebootRequired"),
    ],
)
def test_what_the_driver_wants_done_is_said(nvml: ScriptedNvml, action: int, reason: str) -> None:
    source = NvmlGpus()
    gpu = source.find()[0]
    nvml.gpus[0].action = action
    assert source.health(gpu).reason == reason


def test_an_error_of_a_gpu_that_cannot_be_told_concerns_all(nvml: ScriptedNvml) -> None:
    source = NvmlGpus()
    gpus = source.find()
    nvml.gpus[1].trouble = scripted_nvml.LOST
    nvml.events = [(1, scripted_nvml.XID, 79)]
    assert [source.health(gpu).reason for gpu in gpus] == ["Xid79"] * 3


# -- A driver that comes late ------------------------------------------------------------------------------------------


def test_without_the_driver_those_found_last_are_served(nvml: ScriptedNvml, tmp_path: Path) -> None:
    file = tmp_path / "gpus.json"
    before = RememberingGpus(NvmlGpus(), file).find()
    nvml.away = scripted_nvml.DRIVER_NOT_LOADED
    source = RememberingGpus(NvmlGpus(), file)
    assert source.find() == before
    assert source.find() == before  # whoever asks again, as long as it has never answered
    assert source.health(before[0]).reason == "DriverAway"
    nvml.away = 0
    assert source.find() == before
    assert source.health(before[0]) == HEALTHY
    nvml.away = scripted_nvml.DRIVER_NOT_LOADED
    with pytest.raises(GpusUnavailable, match="the NVIDIA driver does not answer"):
        source.find()


def test_a_driver_that_hangs_holds_up_no_start(
    nvml: ScriptedNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orion.node_agent.gpus.remembering._START_SECONDS", 0.05)
    file = tmp_path / "gpus.json"
    goes_on = threading.Event()

    def hanging() -> None:
        assert goes_on.wait(60)
        nvml.begun += 1

    monkeypatch.setattr(nvml, "nvmlInit", hanging)
    with pytest.raises(GpusUnavailable, match="the driver has not answered for"):
        RememberingGpus(NvmlGpus(), file).find()
    monkeypatch.setattr("orion.node_agent.gpus.remembering._START_SECONDS", 60.0)
    source = RememberingGpus(NvmlGpus(), file)
    goes_on.set()
    assert len(source.find()) == 3


@pytest.mark.parametrize("content", [b"", b"[{", b'[{"uuid": 1}]', b"{}"])
def test_a_memory_that_cannot_be_read_is_none(nvml: ScriptedNvml, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "gpus.json"
    file.write_bytes(content)
    nvml.away = scripted_nvml.DRIVER_NOT_LOADED
    with pytest.raises(GpusUnavailable):
        RememberingGpus(NvmlGpus(), file).find()
    nvml.away = 0
    RememberingGpus(NvmlGpus(), file).find()
    nvml.away = scripted_nvml.DRIVER_NOT_LOADED
    assert len(RememberingGpus(NvmlGpus(), file).find()) == 3


def test_the_agent_finds_those_found_last_whatever_chose_the_source(nvml: ScriptedNvml, tmp_path: Path) -> None:
    file = tmp_path / "gpus.json"
    before = factory.choose("auto", None, file).find()
    nvml.away = scripted_nvml.DRIVER_NOT_LOADED
    assert factory.choose("auto", None, file).find() == before
    assert factory.choose("nvml", None, file).find() == before


def test_a_machine_with_a_gpu_waits_for_its_driver(
    nvml: ScriptedNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml.away = scripted_nvml.DRIVER_NOT_LOADED
    monkeypatch.delenv("ORION_SIM_GPUS", raising=False)
    devices = {"0000:00:02.0": ("0x10de", "0x020000"), "0000:3b:00.0": ("0x1234", "0x030000")}
    for name, (vendor, kind) in devices.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "vendor").write_text(vendor)
        (tmp_path / name / "class").write_text(kind)
    assert not factory.has_nvidia_gpu(tmp_path)
    (tmp_path / "0000:3b:00.0" / "vendor").write_text("0x10de\n")
    assert factory.has_nvidia_gpu(tmp_path)
    monkeypatch.setattr(factory, "has_nvidia_gpu", lambda: True)
    assert factory.choose("auto", None).name == "nvml"


# -- The keeper --------------------------------------------------------------------------------------------------------

PATIENCE = Patience(doubts=3, looks=2, hold_s=0.0)


async def _look_until(keeper: HealthKeeper, condition: Callable[[], bool]) -> None:
    for _ in range(200):
        if condition():
            return
        await keeper.look()
    raise AssertionError("never")


def test_the_keeper_finds_a_driver_that_comes_late_and_is_loaded_again(
    nvml: ScriptedNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orion.node_agent.gpus.keeper._SEARCH_SECONDS", 0.0)
    nvml.away = scripted_nvml.DRIVER_NOT_LOADED
    found: list[Gpu] = []
    changes: list[None] = []

    async def scenario() -> None:
        keeper = HealthKeeper(NvmlGpus(), [], lambda: changes.append(None), found.append, PATIENCE)
        await keeper.look()
        assert not found
        assert keeper.verdict(uuid(0)) == GONE
        nvml.away = 0
        await _look_until(keeper, lambda: len(found) == 3)
        assert keeper.verdict(uuid(0)).healthy
        nvml.away = scripted_nvml.DRIVER_NOT_LOADED
        await _look_until(keeper, lambda: keeper.verdict(uuid(0)).reason == "DriverAway")
        nvml.away = 0
        await _look_until(keeper, lambda: keeper.verdict(uuid(0)).healthy)
        del nvml.gpus[2]
        nvml.gpus[0].trouble = scripted_nvml.LOST  # so that it asks which there are
        await _look_until(keeper, lambda: keeper.verdict(uuid(2)).reason == "GPUGone")
        assert len(found) == 3
        assert changes

    asyncio.run(scenario())


def test_a_driver_that_hangs_makes_its_gpus_unhealthy_until_it_answers(
    nvml: ScriptedNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orion.node_agent.gpus.keeper._HANGS_SECONDS", 0.05)
    goes_on, seen = threading.Event(), asyncio.Event()
    source = NvmlGpus()
    gpus = source.find()

    def hanging(handle: int) -> list[int]:
        assert goes_on.wait(60)
        return [0, 0]

    monkeypatch.setattr(nvml, "nvmlDeviceGetMigMode", hanging)

    async def scenario() -> None:
        keeper = HealthKeeper(source, gpus, seen.set, patience=PATIENCE)
        looking = asyncio.create_task(keeper.look())
        await asyncio.wait_for(seen.wait(), 60)
        assert keeper.verdict(uuid(0)).reason == "DriverHangs"
        goes_on.set()
        await looking
        await _look_until(keeper, lambda: keeper.verdict(uuid(0)).healthy)

    asyncio.run(scenario())


def test_mig_is_a_change(nvml: ScriptedNvml) -> None:
    changes: list[None] = []

    async def scenario() -> None:
        source = NvmlGpus()
        keeper = HealthKeeper(source, source.find(), lambda: changes.append(None), patience=PATIENCE)
        await keeper.look()
        before = len(changes)
        await keeper.look()
        assert len(changes) == before
        assert not keeper.mig(uuid(1))
        nvml.gpus[1].mig = True
        await keeper.look()
        assert len(changes) == before + 1
        assert keeper.mig(uuid(1))

    asyncio.run(scenario())


# -- The state machine -------------------------------------------------------------------------------------------------

BAD, SLIP = Health(False, "GPULost", "It is lost."), Health(False, "DriverError", "It said no.", critical=False)
LONG = Patience(doubts=3, looks=4, hold_s=5.0, hold_max_s=40.0, forget_s=100.0)
REPORTS = st.lists(
    st.tuples(st.sampled_from([HEALTHY, BAD, SLIP]), st.floats(0.1, 3.0, allow_nan=False)), min_size=1, max_size=300
)


@given(REPORTS)
def test_a_verdict_is_never_too_good_and_never_too_bad(reports: list[tuple[Health, float]]) -> None:
    kept, now = Hysteresis(LONG), 0.0
    history: list[tuple[float, Health]] = []
    for report, step in reports:
        now += step
        before = kept.verdict
        history.append((now, report))
        changed = kept.look(report, now)
        assert changed == (kept.verdict != before)
        if not report.healthy and report.critical:
            assert not kept.verdict.healthy
        if before.healthy and not kept.verdict.healthy and not report.critical:
            assert all(not each.healthy for _, each in history[-LONG.doubts :])
            assert len(history) >= LONG.doubts
        if not before.healthy and kept.verdict.healthy:
            good = history[-LONG.looks :]
            assert len(good) == LONG.looks
            assert all(each.healthy for _, each in good)
            assert all(each.healthy for when, each in history if when > now - LONG.hold_s)


@given(REPORTS)
def test_a_gpu_that_stays_well_is_healthy_in_bounded_time(reports: list[tuple[Health, float]]) -> None:
    kept, now = Hysteresis(LONG), 0.0
    for report, step in reports:
        now += step
        kept.look(report, now)
    for _ in range(int(LONG.hold_max_s) + LONG.looks + 1):
        now += 1.0
        kept.look(HEALTHY, now)
    assert kept.verdict.healthy


def test_a_gpu_that_flaps_is_held_back_longer_each_time_and_forgiven_later() -> None:
    kept, now, holds = Hysteresis(LONG), 0.0, []

    def recover() -> float:
        nonlocal now
        begun = now
        while not kept.verdict.healthy:
            now += 0.5
            kept.look(HEALTHY, now)
        return now - begun

    for _ in range(6):
        kept.look(BAD, now)
        holds.append(recover())
    assert holds == [5.5, 10.5, 20.5, 40.5, 40.5, 40.5]
    now += 4 * LONG.forget_s
    kept.look(BAD, now)
    assert recover() == 5.5


# -- A driver that hangs -----------------------------------------------------------------------------------------------

_HANGING = """
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>
int orion_sim_gpu_count(void) { return 1; }
int orion_sim_gpu_uuid(int i, char *u) {
    (void)i;
    __builtin_strcpy(u, "GPU-00000000-0000-4000-8000-000000000000");
    return 0;
}
const char *orion_sim_gpu_name(int i) { (void)i; return "A name"; }
int orion_sim_gpu_memory(int i, uint64_t *total, uint64_t *used) {
    (void)i;
    while (access(getenv("ORION_TEST_HANGS"), F_OK) == 0) usleep(1000);
    *total = UINT64_C(8) << 30;
    *used = 0;
    return 0;
}
int orion_sim_gpu_processes(int i, uint32_t *p, uint64_t *m, int n) { (void)i, (void)p, (void)m, (void)n; return 0; }
"""


def test_a_driver_that_hangs_holds_up_neither_answers_nor_the_agents_end(
    socket_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (socket_folder / "hanging.c").write_text(_HANGING)
    library, hangs = socket_folder / "libcuda.so.1", socket_folder / "hangs"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, socket_folder / "hanging.c"], check=True)
    monkeypatch.setenv("ORION_TEST_HANGS", str(hangs))
    agent = AgentProcess(socket_folder / "root", library)
    agent.start()
    try:
        hangs.touch()
        with AgentClient(agent.root) as administrator:
            assert [gpu.memory_bytes for gpu in administrator.snapshot().gpus] == [8 << 30]
        assert agent.terminate() == 0
    finally:
        hangs.unlink()
        if agent.process is not None:
            agent.kill()
