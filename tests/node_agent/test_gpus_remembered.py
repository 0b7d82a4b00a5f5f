"""Which GPUs an agent serves if the driver is loaded late, hangs, or is no longer loaded; with a scripted NVML."""

import threading
from pathlib import Path

import pytest

from orion.errors import Unavailable
from orion.node_agent.gpus import factory
from orion.node_agent.gpus.interface import HEALTHY
from orion.node_agent.gpus.nvml import NvmlGpus
from orion.node_agent.gpus.remembering import RememberingGpus
from orion.node_agent.state.state_file import boot_id
from tests.node_agent import scripted_nvml
from tests.node_agent.scripted_nvml import ScriptedNvml


def test_without_the_driver_the_gpus_found_last_are_served(nvml: ScriptedNvml, tmp_path: Path) -> None:
    file = tmp_path / "gpus.json"
    before = RememberingGpus(NvmlGpus(), file).find()
    nvml.away = scripted_nvml.DRIVER_NOT_LOADED
    source = RememberingGpus(NvmlGpus(), file)
    assert source.find() == before
    assert source.find() == before  # every call returns this until the driver has answered once
    assert source.health(before[0]).reason == "DriverAway"
    nvml.away = 0
    assert source.find() == before
    assert source.health(before[0]) == HEALTHY
    nvml.away = scripted_nvml.DRIVER_NOT_LOADED
    with pytest.raises(Unavailable, match="the NVIDIA driver does not answer"):
        source.find()


def test_a_driver_that_hangs_does_not_block_a_start(
    nvml: ScriptedNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orion.node_agent.gpus.remembering._START_SECONDS", 0.05)
    file = tmp_path / "gpus.json"
    may_return = threading.Event()

    def hanging() -> None:
        assert may_return.wait(60)
        nvml.begun += 1

    monkeypatch.setattr(nvml, "nvmlInit", hanging)
    with pytest.raises(Unavailable, match="the driver has not answered for"):
        RememberingGpus(NvmlGpus(), file).find()
    monkeypatch.setattr("orion.node_agent.gpus.remembering._START_SECONDS", 60.0)
    source = RememberingGpus(NvmlGpus(), file)
    may_return.set()
    assert len(source.find()) == 3


def test_gpus_found_before_the_boot_are_ignored(nvml: ScriptedNvml, tmp_path: Path) -> None:
    file = tmp_path / "gpus.json"
    before = RememberingGpus(NvmlGpus(), file).find()
    file.write_text(file.read_text().replace(boot_id(), "another-boot"))
    nvml.away = scripted_nvml.DRIVER_NOT_LOADED
    with pytest.raises(Unavailable):
        RememberingGpus(NvmlGpus(), file).find()
    nvml.away = 0
    nvml.gpus[2].trouble = scripted_nvml.UNKNOWN
    assert RememberingGpus(NvmlGpus(), file).find() == before[:2]  # the third GPU counts as removed


@pytest.mark.parametrize("content", [b"", b"[{", b'[{"uuid": 1}]', b"{}", b'{"boot": "b", "gpus": [1]}'])
def test_an_unreadable_file_is_ignored(nvml: ScriptedNvml, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "gpus.json"
    file.write_bytes(content)
    nvml.away = scripted_nvml.DRIVER_NOT_LOADED
    with pytest.raises(Unavailable):
        RememberingGpus(NvmlGpus(), file).find()
    nvml.away = 0
    RememberingGpus(NvmlGpus(), file).find()
    nvml.away = scripted_nvml.DRIVER_NOT_LOADED
    assert len(RememberingGpus(NvmlGpus(), file).find()) == 3


def test_the_agent_serves_the_gpus_found_last_with_any_choice(nvml: ScriptedNvml, tmp_path: Path) -> None:
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
