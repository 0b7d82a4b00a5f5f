"""How the agent judges a failing driver. A scripted NVML replaces the driver, which the test machine lacks."""

import asyncio
import threading
from pathlib import Path

import pytest

from orion.node_agent.gpus.hysteresis import Patience
from orion.node_agent.gpus.interface import HEALTHY, Gpu, Kind
from orion.node_agent.gpus.keeper import GONE, HealthKeeper
from orion.node_agent.gpus.nvml import NvmlGpus
from orion.node_agent.gpus.xids import CAUSED_BY_PROGRAMS
from tests.node_agent import scripted_nvml
from tests.node_agent.conftest import look_until
from tests.node_agent.scripted_nvml import ScriptedNvml, uuid


@pytest.fixture
def pci(tmp_path: Path) -> Path:
    """PCI devices as the kernel shows them: links to the folders below their root complexes."""
    for name, node in (("0000:30:00.0", "1"), ("0000:31:00.0", "-1")):
        device = tmp_path / "devices" / "pci0000:2f" / "0000:2f:01.0" / name
        device.mkdir(parents=True)
        (device / "numa_node").write_text(f"{node}\n")
        (tmp_path / name).symlink_to(device)
    return tmp_path


def test_gpus_have_their_index_minor_number_and_numa_node(nvml: ScriptedNvml, pci: Path) -> None:
    gpus = NvmlGpus(pci).find()
    kind = Kind("9.0", "580.95.05", "0000:30:00.0", "pci0000:2f")
    assert gpus[0] == Gpu(uuid(0), 0, "NVIDIA H200", 100, minor=4, numa_node=1, linked=(uuid(1),), kind=kind)
    assert gpus[2].kind == Kind("9.0", "580.95.05", "0000:32:00.0", "")  # the kernel does not show its PCI device
    assert [(each.numa_node, each.linked) for each in gpus[1:]] == [(None, (uuid(0),)), (None, ())]


def test_xids_of_programs_are_ignored_and_others_are_reported_once(nvml: ScriptedNvml) -> None:
    source = NvmlGpus()
    first, second, _ = source.find()
    nvml.events = [(0, scripted_nvml.XID, number) for number in sorted(CAUSED_BY_PROGRAMS)]
    assert source.health(first) == source.health(second) == HEALTHY
    nvml.events = [(1, scripted_nvml.XID, 79)]
    assert source.health(first) == HEALTHY
    reported = source.health(second)
    assert (reported.healthy, reported.reason, reported.critical) == (False, "Xid79", True)
    assert "fallen off the bus" in reported.message
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
def test_an_error_about_one_gpu_affects_only_that_gpu(
    nvml: ScriptedNvml, number: int, reason: str, critical: bool
) -> None:
    source = NvmlGpus()
    first, second, _ = source.find()
    nvml.gpus[0].trouble = number
    reported = source.health(first)
    assert (reported.healthy, reported.reason, reported.critical) == (False, reason, critical)
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
def test_the_recovery_action_of_the_driver_is_reported(nvml: ScriptedNvml, action: int, reason: str) -> None:
    source = NvmlGpus()
    gpu = source.find()[0]
    nvml.gpus[0].action = action
    assert source.health(gpu).reason == reason


def test_an_error_of_an_unidentified_gpu_affects_all_gpus(nvml: ScriptedNvml) -> None:
    source = NvmlGpus()
    gpus = source.find()
    nvml.gpus[1].trouble = scripted_nvml.LOST
    nvml.events = [(1, scripted_nvml.XID, 79)]
    assert [source.health(gpu).reason for gpu in gpus] == ["Xid79"] * 3


def test_xids_of_other_gpus_are_reported_after_one_is_lost(nvml: ScriptedNvml) -> None:
    source = NvmlGpus()
    lost, second, third = source.find()
    nvml.gpus[0].trouble = scripted_nvml.LOST
    assert [source.health(gpu).reason for gpu in (lost, second, third)] == ["GPULost", "", ""]
    nvml.events = [(1, scripted_nvml.XID, 95)]
    assert [source.health(gpu).reason for gpu in (lost, second, third)] == ["GPULost", "Xid95", ""]
    source.find()
    nvml.events = [(2, scripted_nvml.XID, 95)]
    assert [source.health(gpu).reason for gpu in (lost, second, third)] == ["GPULost", "", "Xid95"]
    assert nvml.sets == [[1, 2]]
    nvml.gpus[0].trouble = 0  # it was reset
    source.find()
    nvml.events = [(0, scripted_nvml.XID, 95)]
    assert source.health(lost).reason == "Xid95"
    assert nvml.sets == [[1, 2, 0]]


def test_a_gpu_that_a_search_misses_hides_no_xids_of_others(nvml: ScriptedNvml) -> None:
    source = NvmlGpus()
    lost, second, _ = source.find()
    nvml.gpus[0].trouble = scripted_nvml.UNKNOWN
    nvml.events = [(1, scripted_nvml.XID, 95)]
    source.find()
    assert nvml.sets == [[1, 2]]
    assert source.health(second).reason == "Xid95", "what happened before the search counts"
    nvml.gpus[0].trouble = 0
    assert source.health(lost).reason == ""


# -- The keeper --------------------------------------------------------------------------------------------------------

PATIENCE = Patience(doubts=3, looks=2, hold_s=0.0)


def test_the_keeper_finds_a_driver_that_is_loaded_late_or_again(
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
        await look_until(keeper, lambda: len(found) == 3)
        assert keeper.verdict(uuid(0)).healthy
        nvml.away = scripted_nvml.DRIVER_NOT_LOADED
        await look_until(keeper, lambda: keeper.verdict(uuid(0)).reason == "DriverAway")
        nvml.away = 0
        await look_until(keeper, lambda: keeper.verdict(uuid(0)).healthy)
        del nvml.gpus[2]
        nvml.gpus[0].trouble = scripted_nvml.LOST  # so that the keeper searches for GPUs
        await look_until(keeper, lambda: keeper.verdict(uuid(2)).reason == "GPUGone")
        assert len(found) == 3
        assert changes

    asyncio.run(scenario())


def test_a_driver_that_hangs_makes_its_gpus_unhealthy_until_it_answers(
    nvml: ScriptedNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orion.node_agent.gpus.keeper._HANGS_SECONDS", 0.05)
    may_return, seen = threading.Event(), asyncio.Event()
    source = NvmlGpus()
    gpus = source.find()

    def hanging(handle: int) -> list[int]:
        assert may_return.wait(60)
        return [0, 0]

    monkeypatch.setattr(nvml, "nvmlDeviceGetMigMode", hanging)

    async def scenario() -> None:
        keeper = HealthKeeper(source, gpus, seen.set, patience=PATIENCE)
        looking = asyncio.create_task(keeper.look())
        await asyncio.wait_for(seen.wait(), 60)
        assert keeper.verdict(uuid(0)).reason == "DriverHangs"
        may_return.set()
        await looking
        await look_until(keeper, lambda: keeper.verdict(uuid(0)).healthy)

    asyncio.run(scenario())


def test_a_change_of_mig_is_reported(nvml: ScriptedNvml) -> None:
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
