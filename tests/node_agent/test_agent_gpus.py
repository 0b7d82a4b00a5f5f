"""Which GPUs an agent finds, and which option values are valid."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from orion.errors import NotFound
from orion.node_agent.gpus import factory
from orion.node_agent.gpus.nvml import NvmlGpus
from tests.node_agent.scripted_nvml import DRIVER_NOT_LOADED, LOST, ScriptedGpu, ScriptedNvml, uuid


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> ScriptedNvml:
    """An NVML library with two GPUs."""
    library = ScriptedNvml(ScriptedGpu(), ScriptedGpu(used=1))
    monkeypatch.setitem(sys.modules, "pynvml", library)
    return library


def test_nvml_finds_gpus(nvml: ScriptedNvml) -> None:
    source = factory.choose("auto", None)
    assert isinstance(source, NvmlGpus)
    gpus = source.find()
    assert [(each.uuid, each.model, each.memory_bytes) for each in gpus] == [
        (uuid(0), "NVIDIA H200", 100),
        (uuid(1), "NVIDIA H200", 100),
    ]
    assert (source.memory_used_bytes(gpus[1]), source.process_ids(gpus[1])) == (1, [7])


def test_the_memory_of_a_process_is_known_only_if_the_driver_says_it(nvml: ScriptedNvml) -> None:
    source = factory.choose("nvml", None)
    gpu = source.find()[0]
    nvml.gpus[0].processes = [7, 8]
    nvml.gpus[0].held = {7: 3}
    assert source.memory_of_processes(gpu) == {7: 3, 8: None}
    nvml.gpus[0].trouble = LOST
    assert source.memory_of_processes(gpu) is None


def test_a_driver_that_fails_later_reports_no_processes_and_no_memory(nvml: ScriptedNvml) -> None:
    source = factory.choose("nvml", None)
    gpu = source.find()[0]
    nvml.gpus[0].trouble = LOST
    assert (source.memory_used_bytes(gpu), source.process_ids(gpu)) == (0, [])


def test_without_a_driver_there_are_no_gpus_unless_requested(
    nvml: ScriptedNvml, gpu_names: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml.away = DRIVER_NOT_LOADED
    monkeypatch.delenv("ORION_SIM_GPUS", raising=False)
    monkeypatch.setattr(factory, "has_nvidia_gpu", lambda: False)
    assert factory.choose("auto", None).name == factory.choose("none", None).name == "none"
    assert factory.choose("auto", gpu_names).name == "simulated"
    assert factory.choose("nvml", None).name == "nvml"  # the driver may be loaded later
    with pytest.raises(NotFound, match="the simulated driver cannot be used"):
        factory.choose("simulated", Path("/nowhere/libcuda.so.1"))


@pytest.mark.parametrize(("wanted", "warned"), [("2", True), ("1", False), ("", False)])
def test_a_simulated_machine_that_keeps_another_number_of_gpus_is_named(
    wanted: str, warned: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """Its file keeps the number, so a changed value of the chart would seem to have no effect."""
    machine = SimpleNamespace(find=lambda: ["the only GPU"])
    monkeypatch.setattr(factory, "SimulatedGpus", lambda library: machine)
    monkeypatch.setenv("ORION_SIM_GPUS", wanted)
    monkeypatch.setenv("ORION_SIM_STATE", str(tmp_path))
    factory.choose("simulated", tmp_path / "libcuda.so.1")
    assert (
        f"1, although ORION_SIM_GPUS is 2: to change it, end the programs that use them, remove the files in {tmp_path}"
        in caplog.text
    ) == warned


WRONG = [
    (["--hp-slots", "-1"], "--hp-slots: "),
    (["--be-slots", "many"], "--be-slots: "),
    (["--gpus", "amd"], "argument --gpus: invalid choice"),
    (["--metrics-address", "9435"], "--metrics-address: "),
    (["--metrics-address", "localhost:99999"], "--metrics-address: "),
]


@pytest.mark.parametrize(("options", "sentence"), WRONG, ids=range(len(WRONG)))
def test_a_wrong_option_is_named(options: list[str], sentence: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "orion.node_agent", "--root", str(tmp_path), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
