"""The hook's files on the node: installed completely, repaired, and removed when no container needs them."""

import base64
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orion import hook
from orion.device_plugin import checkpoint, sweeping
from orion.device_plugin.kubelet import api_pb2
from orion.errors import Exhausted, Unreadable
from orion.injection.fail_closed import FailClosedPods
from orion.injection.installing import HookFolder
from orion.injection.snapshot import SnapshotFile
from tests.device_plugin.scripted_agent import devices


@pytest.fixture
def files(tmp_path: Path) -> HookFolder:
    folder = HookFolder(tmp_path / "hook")
    folder.install()
    return folder


def library(folder: Path) -> Path:
    return folder / "liborion_hook.so"


def test_every_user_can_read_the_files(files: HookFolder) -> None:
    assert library(files.current).read_bytes() == hook.library().read_bytes()
    assert library(files.current).stat().st_mode & 0o777 == 0o755
    assert (files.current / "ld.so.preload").stat().st_mode & 0o777 == 0o644
    assert files.current.stat().st_mode & 0o777 == 0o755
    assert not [path for path in files.current.iterdir() if path.name.startswith(".")]


def test_the_folder_is_named_after_its_content(files: HookFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    other = files.base.parent / "other.so"
    other.write_bytes(b"another hook")
    monkeypatch.setattr(hook, "library", lambda: other)
    assert HookFolder(files.base).current != files.current


def test_complete_files_are_not_replaced(files: HookFolder) -> None:
    before = library(files.current).stat().st_ino
    files.install()
    assert library(files.current).stat().st_ino == before


def test_a_broken_file_is_replaced_and_never_overwritten(files: HookFolder) -> None:
    library(files.current).write_bytes(b"half of it")
    with library(files.current).open("rb") as mapped:
        files.install()
        assert mapped.read() == b"half of it"  # processes that have the old file mapped keep it
    assert library(files.current).read_bytes() == hook.library().read_bytes()


def test_a_file_that_somebody_edits_between_two_checks_is_replaced(files: HookFolder) -> None:
    files.install()
    with library(files.current).open("r+b") as edited:
        edited.write(b"other")  # the same size
    files.install()
    assert library(files.current).read_bytes() == hook.library().read_bytes()


def test_folders_that_a_runtime_made_of_files_become_files(files: HookFolder) -> None:
    for name in ("liborion_hook.so", "ld.so.preload"):
        (files.current / name).unlink()
        (files.current / name).mkdir()
    files.install()
    assert library(files.current).is_file()
    assert (files.current / "ld.so.preload").read_text() == f"{hook.CONTAINER_LIBRARY}\n"


@pytest.mark.parametrize("content", [None, b"half of it"])
def test_a_concurrent_start_that_replaces_the_folder_is_no_error(
    files: HookFolder, monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    library(files.current).unlink()
    library(files.current).mkdir()
    rmdir = Path.rmdir

    def overtaken(path: Path) -> None:
        rmdir(path)
        if content is not None:
            path.write_bytes(content)
        rmdir(path)

    monkeypatch.setattr(Path, "rmdir", overtaken)
    files.install()
    assert library(files.current).read_bytes() == hook.library().read_bytes()


def test_a_folder_of_an_earlier_version_gets_the_files_of_this_version(files: HookFolder) -> None:
    earlier = files.base / "0.0.9-0123456789ab"
    earlier.mkdir()  # empty, as a container runtime makes it
    files.repair([earlier, earlier / "ld.so.preload", Path("/run/orion/gpus")])
    assert library(earlier).is_file()
    own = earlier / "liborion_hook.so"
    own.write_bytes(b"what that version had")
    files.repair([earlier])
    assert own.read_bytes() == b"what that version had"


def test_an_error_of_the_disk_is_reported_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "hook").write_text("in the way")
    with pytest.raises(Exhausted, match="cannot be put into"):
        HookFolder(tmp_path / "hook").install()


def test_a_file_system_mounted_noexec_is_reported_in_a_sentence(tmp_path: Path) -> None:
    program = f"from orion.injection.installing import *; HookFolder(Path({str(tmp_path / 'hook')!r})).install()"
    mounted = 'mount -t tmpfs -o noexec none "$0" && exec "$@"'  # in a mount namespace, which ends with the program
    command = ["unshare", "--mount", "sh", "-c", mounted, str(tmp_path), sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True)
    assert "Exhausted: " in done.stderr
    assert "is mounted noexec" in done.stderr


# -- Sweeping ----------------------------------------------------------------------------------------------------------


def old(path: Path) -> Path:
    path.mkdir()
    (path / "liborion_hook.so").write_bytes(b"old")
    long_ago = time.time() - 86_400
    os.utime(path, (long_ago, long_ago))
    return path


def entry(source: Path, pod: str = "pod", devices: object = None) -> dict[str, object]:
    answer = api_pb2.ContainerAllocateResponse(mounts=[{"host_path": str(source), "container_path": "/x"}])
    return {
        "PodUID": pod,
        "ContainerName": "c",
        "ResourceName": "orion.gpu/be",
        "DeviceIDs": devices or {"-1": ["GPU-a::be-0"]},
        "AllocResp": base64.b64encode(answer.SerializeToString()).decode(),
    }


def write(path: Path, *entries: object) -> Path:
    data = {"PodDeviceEntries": list(entries) or None, "RegisteredDevices": {"orion.gpu/be": ["GPU-a::be-0"]}}
    path.write_text(json.dumps({"Data": data, "Checksum": 3_000_000_000}))
    return path


def test_old_folders_that_no_allocation_names_are_removed(files: HookFolder, tmp_path: Path) -> None:
    unnamed, named = old(files.base / "0.1-0123456789ab"), old(files.base / "0.2-0123456789ab")
    by_file, young = old(files.base / "0.3-0123456789ab"), files.base / "0.4-0123456789ab"
    young.mkdir()
    unknown = old(files.base / "somebody's")
    os.utime(files.current, (0, 0))
    sweeping.sweep(files, write(tmp_path / "checkpoint", entry(named), entry(by_file / "ld.so.preload")))
    assert not unnamed.exists()
    assert all(folder.exists() for folder in (named, by_file, young, unknown, files.current))
    assert files.current.stat().st_mtime > time.time() - 3600


@pytest.mark.parametrize(
    "content", ["", "{", '{"Data": {}}', '{"Data": {"PodDeviceEntries": [{"PodUID": "a"}]}}', None]
)
def test_with_an_unreadable_checkpoint_nothing_is_removed(
    files: HookFolder, tmp_path: Path, content: str | None
) -> None:
    folder = old(files.base / "0.1-0123456789ab")
    if content is not None:
        (tmp_path / "checkpoint").write_text(content)
    sweeping.sweep(files, tmp_path / "checkpoint")
    assert folder.exists()


def test_a_temporary_error_of_the_disk_does_not_end_sweeping(files: HookFolder, tmp_path: Path) -> None:
    folder, away = old(files.base / "0.1-0123456789ab"), files.base.with_name("away")
    files.base.rename(away)
    files.base.write_text("")  # no folder: it cannot be listed
    sweeping.sweep(files, write(tmp_path / "checkpoint"))
    files.base.unlink()
    away.rename(files.base)
    sweeping.sweep(files, write(tmp_path / "checkpoint"))
    assert not folder.exists()


def test_one_unreadable_answer_makes_the_whole_checkpoint_unreadable(tmp_path: Path) -> None:
    broken = {**entry(Path("/a")), "AllocResp": "!"}
    with pytest.raises(Unreadable):
        checkpoint.read(write(tmp_path / "checkpoint", entry(Path("/a")), broken))


def test_the_pod_of_a_slot_is_found(tmp_path: Path) -> None:
    path = write(
        tmp_path / "checkpoint",
        entry(Path("/a"), "first", {"0": ["GPU-a::be-0"], "1": ["GPU-b::be-0"]}),
        entry(Path("/b"), "second", ["GPU-a::be-1"]),
    )
    allocations = checkpoint.read(path)
    for device, pod in (("GPU-a::be-0", "first"), ("GPU-b::be-0", "first"), ("GPU-a::be-1", "second")):
        found = checkpoint.of_devices(allocations, [device])
        assert found is not None
        assert found.pod_uid == pod
    assert checkpoint.of_devices(allocations, ["GPU-c::be-0"]) is None


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_checkpoint_or_a_sentence(content: bytes) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        with contextlib.suppress(Unreadable):
            checkpoint.read(Path(file.name))


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_last_snapshot_or_a_sentence(content: bytes) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        with contextlib.suppress(Unreadable):
            SnapshotFile(Path(file.name)).load()


def test_the_last_snapshot_is_saved_completely(tmp_path: Path) -> None:
    file = SnapshotFile(tmp_path / "device-plugin.json")
    assert file.load() is None
    snapshot = devices(2, numa_node=0, hp_busy_ratio=0.35)
    file.save(snapshot)
    assert file.load() == snapshot
    assert [path.name for path in tmp_path.iterdir()] == ["device-plugin.json"]


def test_the_list_of_fail_closed_pods_survives_the_plugin(tmp_path: Path) -> None:
    path = tmp_path / "pods.json"
    pods = FailClosedPods(path)
    for pod, closed in (("a", True), ("b", False), ("c", True), ("a", False), ("", True)):
        pods.note(pod, closed)
    again = FailClosedPods(path)
    assert [pod for pod in ("a", "b", "c", "") if pod in again] == ["c"]
    for broken in ("{", '{"a": 1}', "[1]"):
        path.write_text(broken)
        assert "c" not in FailClosedPods(path)
