"""A driver that another one replaces under the agent, and one that hangs as the agent ends: of a scripted NVML."""

import threading
import time
from pathlib import Path

import pytest

from orion.node_agent.gpus.interface import GpusUnavailable
from orion.node_agent.gpus.nvml import NvmlGpus
from orion.node_agent.gpus.remembering import RememberingGpus
from tests.node_agent import scripted_nvml
from tests.node_agent.scripted_nvml import ScriptedNvml

HANGS_SECONDS = 60.0


def refused(source: NvmlGpus | RememberingGpus) -> None:
    with pytest.raises(GpusUnavailable):
        source.find()


@pytest.mark.parametrize("before", ["answers", "is not loaded"])
def test_another_driver_than_the_one_whose_library_is_loaded_needs_another_process(
    nvml: ScriptedNvml, before: str
) -> None:
    source = NvmlGpus()
    gpus = source.find() if before == "answers" else []
    nvml.away = scripted_nvml.DRIVER_NOT_LOADED  # as while a driver is replaced
    refused(source)
    assert source.needs_restart() == ""
    nvml.away = scripted_nvml.MISMATCH
    refused(source)
    assert "the agent must begin again" in source.needs_restart()
    assert {source.health(gpu).reason for gpu in gpus} <= {"DriverReplaced"}
    nvml.away = 0  # the old one is back
    source.find()
    assert source.needs_restart() == ""


def test_an_agent_that_finds_a_library_of_another_version_asks_for_a_reboot_and_no_restart(
    nvml: ScriptedNvml, tmp_path: Path
) -> None:
    # The driver's packages were updated, and its kernel module runs on: the next agent would find the same.
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
def test_a_driver_that_hangs_in_a_search_or_at_the_end_keeps_no_agent(
    nvml: ScriptedNvml, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    source = NvmlGpus()
    source.find()
    hangs, go_on, answer = threading.Event(), threading.Event(), getattr(nvml, call)

    def hang() -> object:
        hangs.set()
        go_on.wait(HANGS_SECONDS)
        return answer()

    monkeypatch.setattr(nvml, call, hang)
    searching = threading.Thread(target=source.find)
    if call == "nvmlDeviceGetCount":
        searching.start()
        assert hangs.wait(HANGS_SECONDS)
    began = time.monotonic()
    source.close()
    assert time.monotonic() - began < HANGS_SECONDS / 2
    go_on.set()
    if searching.ident is not None:
        searching.join()
