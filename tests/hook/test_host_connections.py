"""A be process has 32 connections for kernels, unless it sets the number itself or is a client of an MPS daemon."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from orion import hook

NUMBER = "CUDA_DEVICE_MAX_CONNECTIONS"
FOR_COPIES = "CUDA_DEVICE_MAX_COPY_CONNECTIONS"
PROGRAM = """
import ctypes, json, os, sys
libc = ctypes.CDLL(None)
libc.getenv.restype = ctypes.c_char_p
before, defaults = os.environ.get(sys.argv[1]), sys.argv[2:]
if defaults:
    os.environ.setdefault(sys.argv[1], defaults[0])
driver = ctypes.CDLL("libcuda.so.1")
for _ in range(2):
    assert driver.cuInit(0) == 0
os.environ["LATER"] = "1"
seen = [libc.getenv(name) for name in (sys.argv[1].encode(), b"LATER", b"PATH")]
print(json.dumps([before, *(None if each is None else each.decode() for each in seen)]))
"""


def connections(
    build: Path, folder: Path, own: dict[str, str], role: str = "be", default: str = "", name: str = NUMBER
) -> str | None:
    """Return what the driver finds in one of CUDA's variables when a process under the hook has started it.

    Args:
        build: the folder of the hook and of the simulated driver.
        folder: where MPS has its socket.
        own: the program's own variables.
        role: be or hp.
        default: what the program sets if the variable is not set.
        name: that of the variable.
    """
    environment = {
        "PATH": os.environ["PATH"],
        "LD_PRELOAD": str(build / hook.HOOK),
        "LD_LIBRARY_PATH": str(build / "sim"),
        "ORION_SIM_STATE": str(folder),
        "ORION_ROOT": str(folder),
        "CUDA_MPS_PIPE_DIRECTORY": str(folder),
    }
    command = [sys.executable, "-c", PROGRAM, name, *filter(None, [default])]
    done = subprocess.run(
        command, env={**environment, **hook.role_environment(role), **own}, capture_output=True, text=True, check=True
    )
    before, seen, later, path = json.loads(done.stdout)
    assert (before, later, path) == (own.get(name), "1", os.environ["PATH"])
    assert isinstance(seen, str | None)
    return seen


def test_a_be_process_has_as_many_connections_as_cuda_allows(c_build: Path, tmp_path: Path) -> None:
    assert connections(c_build, tmp_path, {}) == "32"


@pytest.mark.parametrize(("own", "seen"), [({}, "8"), ({FOR_COPIES: "2"}, "2"), ({NUMBER: "4"}, None)])
def test_copies_keep_the_number_of_cuda(c_build: Path, tmp_path: Path, own: dict[str, str], seen: str | None) -> None:
    """CUDA's variable alone would raise it, too, and each connection takes time at the start and at the end."""
    assert connections(c_build, tmp_path, own, name=FOR_COPIES) == seen


@pytest.mark.parametrize("own", ["1", ""])
def test_the_programs_own_number_stays(c_build: Path, tmp_path: Path, own: str) -> None:
    assert connections(c_build, tmp_path, {NUMBER: own}) == own


def test_a_number_that_the_program_sets_by_default_stays(c_build: Path, tmp_path: Path) -> None:
    assert connections(c_build, tmp_path, {}, default="1") == "1"


def test_an_hp_process_keeps_the_number_of_cuda(c_build: Path, tmp_path: Path) -> None:
    assert connections(c_build, tmp_path, {}, role="hp") is None


def test_a_client_of_an_mps_daemon_keeps_the_number_of_cuda(c_build: Path, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as control:
        control.bind(str(tmp_path / "control"))
        assert connections(c_build, tmp_path, {}) is None


def test_a_folder_whose_name_is_too_long_is_one_of_mps(c_build: Path, tmp_path: Path) -> None:
    assert connections(c_build, tmp_path, {"CUDA_MPS_PIPE_DIRECTORY": "/" + 5000 * "x"}) is None
