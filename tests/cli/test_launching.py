"""The environment and the root folder that `orion run` prepares for a client."""

import os
from pathlib import Path

import pytest

from orion.cli import launching
from orion.errors import Conflict

HOOK = Path("/opt/orion/liborion_hook.so")
SIM = Path("/opt/orion/sim/libcuda.so.1")


def test_the_hook_comes_before_what_is_preloaded_already() -> None:
    old = {"LD_PRELOAD": "/a.so /b.so", "HOME": "/root"}
    new = launching.client_environment(old, Path("/run/orion/run/1"), HOOK, None)
    assert new == {"LD_PRELOAD": f"{HOOK}:/a.so:/b.so", "HOME": "/root", "ORION_ROOT": "/run/orion/run/1"}


def test_a_client_started_by_a_client_preloads_the_hook_once() -> None:
    once = launching.client_environment({}, Path("/r/1"), HOOK, SIM)
    twice = launching.client_environment(once, Path("/r/2"), HOOK, SIM)
    assert twice == once | {"ORION_ROOT": "/r/2"}


def test_the_simulated_driver_is_found_first() -> None:
    new = launching.client_environment({"LD_LIBRARY_PATH": "/usr/lib:/x"}, Path("/r"), HOOK, SIM)
    assert new["LD_LIBRARY_PATH"] == f"{SIM.parent}:/usr/lib:/x"


@pytest.mark.parametrize("folder", ["/my files", "/a:b", "/a;b"])
def test_a_path_that_the_linker_would_split_is_refused(folder: str) -> None:
    with pytest.raises(Conflict, match="dynamic linker"):
        launching.client_environment({}, Path("/r"), Path(folder, "liborion_hook.so"), None)


def test_a_client_sees_its_own_slots_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "hp-0").mkdir()
    root = launching.make_client_root(tmp_path, os.getpid(), {"GPU-1": str(tmp_path / "hp-0")})
    assert [p.name for p in root.rglob("*")] == ["slots", "GPU-1"]
    assert (root / "slots" / "GPU-1").readlink() == tmp_path / "hp-0"


def test_folders_of_ended_processes_without_slots_are_swept(tmp_path: Path) -> None:
    last = int(Path("/proc/sys/kernel/pid_max").read_text())
    for process_id in (os.getpid(), last + 1, last + 2):
        launching.make_client_root(tmp_path, process_id, {})
    launching.sweep(tmp_path, {last + 2})
    assert {p.name for p in (tmp_path / "run").iterdir()} == {str(os.getpid()), str(last + 2)}


def test_a_reused_process_id_does_not_inherit_slots(tmp_path: Path) -> None:
    launching.make_client_root(tmp_path, 7, {"GPU-1": "/old"})
    root = launching.make_client_root(tmp_path, 7, {"GPU-2": "/new"})
    assert [p.name for p in (root / "slots").iterdir()] == ["GPU-2"]
