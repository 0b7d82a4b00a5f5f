"""GPUs whose driver has transient errors: unexpected exceptions and missing answers; with a scripted NVML."""

import asyncio
from pathlib import Path

import pytest

from orion.node_agent.gpus.hysteresis import Patience
from orion.node_agent.gpus.interface import HEALTHY
from orion.node_agent.gpus.keeper import HealthKeeper
from orion.node_agent.gpus.nvml import NvmlGpus
from orion.node_agent.gpus.remembering import RememberingGpus
from tests.node_agent import scripted_nvml
from tests.node_agent.conftest import look_until
from tests.node_agent.scripted_nvml import ScriptedNvml, uuid

PATIENCE = Patience(doubts=3, looks=2, hold_s=0.0)


def _broken(*_: object) -> None:
    raise RuntimeError("as nobody expected")


# -- Unexpected errors -------------------------------------------------------------------------------------------------


def test_checks_continue_after_a_failure(
    nvml: ScriptedNvml, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("orion.node_agent.gpus.keeper._LOOK_SECONDS", 0.001)
    source = NvmlGpus()
    keeper = HealthKeeper(source, source.find(), _broken, patience=PATIENCE)

    async def scenario() -> None:
        running = asyncio.create_task(keeper.run())
        async with asyncio.timeout(60):
            while "a health check failed" not in caplog.text:  # logged at the first check of MIG, or of health
                nvml.gpus[0].mig = not nvml.gpus[0].mig
                await asyncio.sleep(0.01)
            nvml.gpus[0].trouble = scripted_nvml.LOST
            while keeper.verdict(uuid(0)).healthy:
                await asyncio.sleep(0.01)
        assert not running.done()
        running.cancel()

    asyncio.run(scenario())


def test_an_unexpected_error_of_one_gpu_affects_only_that_gpu(
    nvml: ScriptedNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = NvmlGpus()
    keeper = HealthKeeper(source, source.find(), lambda: None, patience=PATIENCE)
    health = source.health
    monkeypatch.setattr(source, "health", lambda gpu: _broken() if gpu.uuid == uuid(0) else health(gpu))

    async def scenario() -> None:
        await keeper.look()
        assert keeper.verdict(uuid(0)) == HEALTHY
        await look_until(keeper, lambda: keeper.verdict(uuid(0)).reason == "DriverError")
        assert keeper.verdict(uuid(1)) == HEALTHY
        monkeypatch.undo()
        await look_until(keeper, lambda: keeper.verdict(uuid(0)).healthy)

    asyncio.run(scenario())


def test_an_unexpected_error_of_a_search_or_about_mig_does_not_affect_the_rest_of_a_check(
    nvml: ScriptedNvml, searching: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml.gpus[1].mig = True
    source = NvmlGpus()
    keeper = HealthKeeper(source, source.find(), lambda: None, patience=PATIENCE)

    async def scenario() -> None:
        await keeper.look()
        monkeypatch.setattr(source, "find", _broken)
        monkeypatch.setattr(source, "mig_enabled", _broken)
        nvml.gpus[0].trouble = scripted_nvml.LOST
        await keeper.look()
        assert keeper.verdict(uuid(0)).reason == "GPULost"
        assert [keeper.mig(uuid(index)) for index in range(3)] == [False, True, False]
        assert "as nobody expected" in keeper.unavailable

    asyncio.run(scenario())


def test_searches_continue_after_the_first_search_failed(
    nvml: ScriptedNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = RememberingGpus(NvmlGpus(), tmp_path / "gpus.json")
    with monkeypatch.context() as patched:
        patched.setattr(nvml, "nvmlInit", _broken)
        with pytest.raises(RuntimeError):
            source.find()
    assert len(source.find()) == 3


# -- MIG ---------------------------------------------------------------------------------------------------------------


def test_a_transient_error_opens_no_slots_on_a_gpu_with_mig(nvml: ScriptedNvml) -> None:
    nvml.gpus[0].mig = True
    source = NvmlGpus()
    first, second, third = source.find()
    assert (source.mig_enabled(first), source.mig_enabled(second)) == (True, False)
    for gpu in nvml.gpus:
        gpu.mig_trouble = scripted_nvml.UNKNOWN
    # These are the last answers; the driver has never answered about the third GPU.
    assert [source.mig_enabled(gpu) for gpu in (first, second, third)] == [True, False, True]
    for gpu in nvml.gpus:
        gpu.mig_trouble = scripted_nvml.NOT_SUPPORTED
    assert [source.mig_enabled(gpu) for gpu in (first, second, third)] == [False] * 3


def test_a_gpu_without_an_answer_is_unhealthy_and_not_in_mig_mode(nvml: ScriptedNvml, tmp_path: Path) -> None:
    before = RememberingGpus(NvmlGpus(), tmp_path / "gpus.json").find()
    nvml.away = scripted_nvml.DRIVER_NOT_LOADED
    source = RememberingGpus(NvmlGpus(), tmp_path / "gpus.json")
    assert source.find() == before
    assert [(source.health(gpu).reason, source.mig_enabled(gpu)) for gpu in before] == [("DriverAway", False)] * 3


@pytest.mark.usefixtures("searching")
def test_a_transient_error_of_a_search_removes_no_gpu(nvml: ScriptedNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    source = NvmlGpus()
    keeper = HealthKeeper(source, source.find(), lambda: None, patience=PATIENCE)
    count, errors = nvml.nvmlDeviceGetCount, [scripted_nvml.UNKNOWN]

    def failing_once() -> int:
        if errors:
            raise scripted_nvml.NVMLError(errors.pop())
        return count()

    async def scenario() -> None:
        monkeypatch.setattr(nvml, "nvmlDeviceGetCount", failing_once)
        await keeper.look()
        nvml.gpus[1].minor_trouble = scripted_nvml.UNKNOWN
        await keeper.look()
        assert not errors
        assert all(keeper.verdict(uuid(index)).healthy for index in range(3))

    asyncio.run(scenario())
