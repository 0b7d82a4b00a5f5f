"""A be process has a connection to the GPU for each of its streams, unless it sets the number or uses MPS."""

import os
import socket
import subprocess
from pathlib import Path

import pytest

from orion import hook

NUMBER = "CUDA_DEVICE_MAX_CONNECTIONS"


def connections(build: Path, folder: Path, own: dict[str, str], role: str = "be") -> str | None:
    """Return what a process under the hook finds in CUDA's variable, with its own variables."""
    given = hook.BE_CONNECTIONS if role == "be" else {}
    base = {"PATH": os.environ["PATH"], "LD_PRELOAD": str(build / hook.HOOK), "CUDA_MPS_PIPE_DIRECTORY": str(folder)}
    seen = subprocess.run(["env"], env={**base, **given, **own}, capture_output=True, text=True, check=True).stdout
    return dict(line.split("=", 1) for line in seen.splitlines()).get(NUMBER)


def test_a_be_process_has_as_many_connections_as_cuda_allows(c_build: Path, tmp_path: Path) -> None:
    assert connections(c_build, tmp_path, {}) == "32"


@pytest.mark.parametrize("own", ["1", ""])
def test_the_programs_own_number_stays(c_build: Path, tmp_path: Path, own: str) -> None:
    assert connections(c_build, tmp_path, {NUMBER: own}) == own


def test_an_hp_process_keeps_the_number_of_cuda(c_build: Path, tmp_path: Path) -> None:
    assert connections(c_build, tmp_path, {}, role="hp") is None


def test_a_client_of_an_mps_daemon_keeps_the_number_of_cuda(c_build: Path, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as control:
        control.bind(str(tmp_path / "control"))
        assert connections(c_build, tmp_path, {}) is None


def test_a_folder_whose_name_is_too_long_is_one_of_mps(c_build: Path, tmp_path: Path) -> None:
    assert connections(c_build, tmp_path, {"CUDA_MPS_PIPE_DIRECTORY": "/" + 5000 * "x"}) is None
