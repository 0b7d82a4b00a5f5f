"""The private MPS daemon, tested with a fake daemon that behaves as NVIDIA's manual says."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from orion.bench.colocation.mps import CONTROL, SERVER, MpsDaemon, missing
from orion.errors import Unavailable
from tests.processes import is_running
from tests.waiting import eventually

DAEMON = """#!/bin/sh
pipe=$CUDA_MPS_PIPE_DIRECTORY
if [ "$1" = -d ]; then
    [ -e "$FAKE_REFUSAL" ] && { echo "An instance of this daemon is already running" >&2; exit 1; }
    setsid sleep 1000 >/dev/null 2>&1 &
    echo $! >"$pipe/nvidia-cuda-mps-control.pid"
    echo 4711 >"$pipe/servers"
    exit 0
fi
read -r command rest
daemon=$(cat "$pipe/nvidia-cuda-mps-control.pid" 2>/dev/null)
case $(sed 's/.*) //' "/proc/$daemon/stat" 2>/dev/null) in
"" | Z*) echo "Cannot find MPS control daemon process" >&2; exit 1 ;;
esac
case $command in
get_server_list) cat "$pipe/servers" ;;
quit) kill "$daemon"; rm "$pipe/nvidia-cuda-mps-control.pid" ;;
esac
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    for name in (CONTROL, SERVER):
        (tmp_path / name).write_text(DAEMON)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_REFUSAL", str(tmp_path / "refuse"))
    return dict(os.environ)


def daemon_of(pipe: str) -> int:
    return int((Path(pipe) / f"{CONTROL}.pid").read_text())


def test_clients_get_a_pipe_of_their_own_and_the_gpu_by_its_uuid(programs: dict[str, str]) -> None:
    with MpsDaemon(programs, "GPU-1") as one, MpsDaemon(programs, "GPU-2") as other:
        assert one.client_environment["CUDA_VISIBLE_DEVICES"] == "GPU-1"
        assert one.client_environment["CUDA_MPS_PIPE_DIRECTORY"] != other.client_environment["CUDA_MPS_PIPE_DIRECTORY"]
        assert one.servers() == {4711}


def test_a_daemon_leaves_no_process_and_no_folder(programs: dict[str, str]) -> None:
    with MpsDaemon(programs, "GPU-1") as daemon:
        pipe = daemon.client_environment["CUDA_MPS_PIPE_DIRECTORY"]
        process_id = daemon_of(pipe)
        assert is_running(process_id)
    assert not is_running(process_id)
    assert not Path(pipe).exists()


def test_a_daemon_that_died_is_noticed(programs: dict[str, str]) -> None:
    with MpsDaemon(programs, "GPU-1") as daemon:
        process_id = daemon_of(daemon.client_environment["CUDA_MPS_PIPE_DIRECTORY"])
        os.kill(process_id, signal.SIGKILL)
        eventually(lambda: not is_running(process_id), "the daemon has ended")
        with pytest.raises(Unavailable, match="the MPS daemon has ended: Cannot find"):
            daemon.servers()


def test_a_failed_start_is_reported_and_leaves_nothing(programs: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "refuse").touch()
    with pytest.raises(Unavailable, match="ended with status 1: An instance"), MpsDaemon(programs, "GPU-1"):
        pass


def test_missing_programs_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert missing() == f"MPS needs {CONTROL} and {SERVER}, which PATH does not have"
    with pytest.raises(Unavailable, match="which PATH does not have"), MpsDaemon({}, "GPU-1"):
        pass


def test_the_daemon_ends_with_a_killed_measurement(programs: dict[str, str]) -> None:
    program = (
        "import os, sys, time\nfrom orion.bench.colocation.mps import MpsDaemon\n"
        "with MpsDaemon(dict(os.environ), 'GPU-1') as daemon:\n"
        "    print(daemon.client_environment['CUDA_MPS_PIPE_DIRECTORY'], flush=True)\n"
        "    time.sleep(1000)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], env=programs, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        process_id = daemon_of(started.stdout.readline().strip())
        started.kill()
    eventually(lambda: not is_running(process_id))
