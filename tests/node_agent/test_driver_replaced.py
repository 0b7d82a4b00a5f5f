"""Tests with a scripted NVML: a driver is replaced while the agent runs, or hangs when the agent ends."""

import threading
import time
from pathlib import Path

import pytest

from orion.errors import Unavailable
from orion.node_agent.gpus.nvml import NvmlGpus
from orion.node_agent.gpus.remembering import RememberingGpus
from tests.node_agent import scripted_nvml
from tests.node_agent.scripted_nvml import ScriptedNvml

HANGS_SECONDS = 60.0


def refused(source: NvmlGpus | RememberingGpus) -> None:
    with pytest.raises(Unavailable):
        source.find()


@pytest.mark.parametrize("before", ["answers", "is not loaded"])
def test_a_replaced_driver_needs_a_new_process(nvml: ScriptedNvml, before: str) -> None:
    source = NvmlGpus()
    gpus = source.find() if before == "answers" else []
    nvml.away = scripted_nvml.DRIVER_NOT_LOADED  # as during the replacement of a driver
    refused(source)
    assert source.needs_restart() == ""
    nvml.away = scripted_nvml.MISMATCH
    refused(source)
    assert "the agent must be restarted" in source.needs_restart()
    assert {source.health(gpu).reason for gpu in gpus} <= {"DriverReplaced"}
    nvml.away = 0  # the old driver is loaded again
    source.find()
    assert source.needs_restart() == ""


def test_an_agent_that_finds_a_library_of_another_version_asks_for_a_reboot_and_no_restart(
    nvml: ScriptedNvml, tmp_path: Path
) -> None:
    # The driver's packages were updated, but the old kernel module still runs. A restart of the agent would not help.
    file = tmp_path / "gpus.json"
    gpus = RememberingGpus(NvmlGpus(), file).find()
    nvml.away = scripted_nvml.MISMATCH
    source = RememberingGpus(NvmlGpus(), file)
    for _ in range(3):
        assert source.find() == gpus
        assert source.needs_restart() == ""
        reported = source.health(gpus[0])
        assert (reported.healthy, reported.reason) == (False, "DriverMismatch")
        assert "reboot the node" in reported.message


@pytest.mark.parametrize("call", ["nvmlDeviceGetCount", "nvmlShutdown"])
def test_a_driver_that_hangs_does_not_block_the_agents_end(
    nvml: ScriptedNvml, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    source = NvmlGpus()
    source.find()
    hangs, may_return, answer = threading.Event(), threading.Event(), getattr(nvml, call)

    def hang() -> object:
        hangs.set()
        may_return.wait(HANGS_SECONDS)
        return answer()

    monkeypatch.setattr(nvml, call, hang)
    searching = threading.Thread(target=source.find)
    if call == "nvmlDeviceGetCount":
        searching.start()
        assert hangs.wait(HANGS_SECONDS)
    began = time.monotonic()
    source.close()
    assert time.monotonic() - began < HANGS_SECONDS / 2
    may_return.set()
    if searching.ident is not None:
        searching.join()
