"""Which GPUs an agent finds, and what its options may be."""

import subprocess
import sys
import types
from pathlib import Path

import pytest

from orion.node_agent.errors import Invalid
from orion.node_agent.gpus import factory
from orion.node_agent.gpus.interface import Gpu
from orion.node_agent.gpus.nvml import NvmlGpus


class NVMLError(Exception):
    pass


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A driver's management library with two GPUs, in the shapes that nvidia-ml-py returns."""
    library = types.ModuleType("pynvml")
    calls = {
        "nvmlInit": lambda: None,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle}",
        "nvmlDeviceGetName": lambda handle: b"NVIDIA H200",
        "nvmlDeviceGetMemoryInfo": lambda handle: types.SimpleNamespace(total=100, used=handle),
        "nvmlDeviceGetComputeRunningProcesses": lambda handle: [types.SimpleNamespace(pid=7)],
        "NVMLError": NVMLError,
    }
    for name, call in calls.items():
        setattr(library, name, call)
    monkeypatch.setitem(sys.modules, "pynvml", library)
    return library


def test_nvml_finds_gpus(nvml: types.ModuleType) -> None:
    source = factory.choose("auto", None)
    assert isinstance(source, NvmlGpus)
    gpus = source.find()
    assert gpus == [Gpu("GPU-0", 0, "NVIDIA H200", 100), Gpu("GPU-1", 1, "NVIDIA H200", 100)]
    assert (source.memory_used_bytes(gpus[1]), source.process_ids(gpus[1])) == (1, [7])


def _fail(*_: object) -> None:
    raise NVMLError("the driver is not loaded")


def test_a_driver_that_fails_later_is_silent(nvml: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    source = factory.choose("nvml", None)
    gpu = source.find()[0]
    monkeypatch.setattr(nvml, "nvmlDeviceGetMemoryInfo", _fail)
    monkeypatch.setattr(nvml, "nvmlDeviceGetComputeRunningProcesses", _fail)
    assert (source.memory_used_bytes(gpu), source.process_ids(gpu)) == (0, [])


def test_without_a_driver_there_are_none_unless_asked_for(
    nvml: types.ModuleType, gpu_names: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml, "nvmlInit", _fail)
    monkeypatch.delenv("ORION_SIM_GPUS", raising=False)
    assert factory.choose("auto", None).name == factory.choose("none", None).name == "none"
    assert factory.choose("auto", gpu_names).name == "simulated"
    with pytest.raises(Invalid, match="NVML does not work here: the driver is not loaded"):
        factory.choose("nvml", None)
    with pytest.raises(Invalid, match="the simulated driver cannot be used"):
        factory.choose("simulated", Path("/nowhere/libcuda.so.1"))


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
