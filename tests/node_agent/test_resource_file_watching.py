"""Every way in which people and programs change a file is noticed, and no rule is lost meanwhile."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from orion.node_agent.resource_files import watching
from orion.node_agent.resource_files.reading import ResourceFiles
from orion.node_agent.resource_files.watching import Watching
from tests.waiting import DEADLINE

UUID = "GPU-00000000-0000-4000-8000-000000000000"


@pytest.fixture(autouse=True)
def _only_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_SECONDS", 10 * DEADLINE)


def text(*ids: str) -> str:
    return "".join([f"{len(ids)}\n", *(f"{each} 0.1 0.5 9999999\n" for each in ids)])


class Followed:
    """A path that is read after each event."""

    def __init__(self, path: Path) -> None:
        self.files = ResourceFiles(path)
        self.watching = Watching(path)

    def look(self) -> None:
        self.watching.follow()
        self.files.read()

    def ids(self, uuid: str = UUID) -> list[str]:
        return list(self.files.of(uuid).rules)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for events until the condition holds; no event is waited for longer than the deadline."""
        async with asyncio.timeout(DEADLINE):
            self.look()
            while not condition():
                await self.watching.changed()
                self.look()


@contextlib.asynccontextmanager
async def following(path: Path) -> AsyncIterator[Followed]:
    followed = Followed(path)
    followed.look()
    with contextlib.closing(followed.watching):
        yield followed


async def test_a_file_that_is_written_in_place(tmp_path: Path) -> None:
    path = tmp_path / "rules"
    path.write_text(text("a"))
    async with following(path) as followed:
        assert followed.ids() == ["a"]
        path.write_text(text("b"))
        await followed.until(lambda: followed.ids() == ["b"])


async def test_a_file_that_is_replaced_again_and_again(tmp_path: Path) -> None:
    path = tmp_path / "rules"
    async with following(path) as followed:
        for name in ("a", "b", "c"):
            fresh = tmp_path / "fresh"
            fresh.write_text(text(name))
            fresh.replace(path)
            await followed.until(lambda name=name: followed.ids() == [name])  # type: ignore[misc]


async def test_half_a_line_waits_for_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "rules"
    path.write_text(text("a"))
    async with following(path) as followed:
        whole = text("b", "c")
        with path.open("w") as file:
            file.write(whole[: len(whole) // 2])
            file.flush()
            followed.look()
            assert followed.ids() == ["a"]
            assert f"{path}, line 2: " in followed.files.of(UUID).fault
            file.write(whole[len(whole) // 2 :])
        await followed.until(lambda: followed.ids() == ["b", "c"])
        assert not followed.files.of(UUID).remarks


async def test_a_file_that_vanishes_keeps_its_rules(tmp_path: Path) -> None:
    path = tmp_path / "rules"
    path.write_text(text("a"))
    async with following(path) as followed:
        path.unlink()
        await followed.until(lambda: bool(followed.files.of(UUID).fault))
        assert followed.ids() == ["a"]
        assert f"{path} cannot be read: No such file" in followed.files.of(UUID).remarks[0]
        path.write_text(text("b"))
        await followed.until(lambda: followed.ids() == ["b"])


async def test_a_mounted_configmap_swaps_a_link(tmp_path: Path) -> None:
    # As the kubelet writes it: rules -> ..data/rules, ..data -> ..1, and a rename over ..data.
    for number in (1, 2):
        (tmp_path / f"..{number}").mkdir()
        (tmp_path / f"..{number}" / "rules").write_text(text(f"id{number}"))
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "rules").symlink_to("..data/rules")
    async with following(tmp_path / "rules") as followed:
        assert followed.ids() == ["id1"]
        (tmp_path / "..data_tmp").symlink_to("..2")
        os.replace(tmp_path / "..data_tmp", tmp_path / "..data")
        await followed.until(lambda: followed.ids() == ["id2"])


async def test_a_folder_that_is_a_mounted_configmap(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / f"..{number}").mkdir()
        (tmp_path / f"..{number}" / UUID).write_text(text(f"id{number}"))
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / UUID).symlink_to(f"..data/{UUID}")
    async with following(tmp_path) as followed:
        assert followed.ids() == ["id1"]
        (tmp_path / "..data_tmp").symlink_to("..2")
        os.replace(tmp_path / "..data_tmp", tmp_path / "..data")
        await followed.until(lambda: followed.ids() == ["id2"])


async def test_a_link_to_a_file_that_is_replaced_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "near").mkdir()
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "rules").write_text(text("a"))
    (tmp_path / "near" / "rules").symlink_to("../far/rules")
    async with following(tmp_path / "near" / "rules") as followed:
        (tmp_path / "far" / "fresh").write_text(text("b"))
        (tmp_path / "far" / "fresh").replace(tmp_path / "far" / "rules")
        await followed.until(lambda: followed.ids() == ["b"])


async def test_a_folder_that_appears_later(tmp_path: Path) -> None:
    folder = tmp_path / "not" / "yet"
    async with following(folder) as followed:
        assert "No such file" in followed.files.of(UUID).fault
        folder.mkdir(parents=True)
        (folder / UUID).write_text(text("a"))
        await followed.until(lambda: followed.ids() == ["a"])
        assert not followed.files.of(UUID).fault


async def test_a_folder_that_is_renamed_and_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "above" / "rules"
    folder.mkdir(parents=True)
    (folder / UUID).write_text(text("a"))
    async with following(folder) as followed:
        (tmp_path / "above").rename(tmp_path / "old")
        await followed.until(lambda: bool(followed.files.of(UUID).fault))
        assert followed.ids() == ["a"]
        folder.mkdir(parents=True)
        (folder / UUID).write_text(text("b"))
        await followed.until(lambda: followed.ids() == ["b"])


async def test_each_gpu_has_its_file_in_a_folder(tmp_path: Path) -> None:
    other = UUID.replace("GPU-0", "GPU-1")
    (tmp_path / UUID).write_text(text("a"))
    (tmp_path / other).write_text(text("b"))
    (tmp_path / "README").write_text("nothing")
    async with following(tmp_path) as followed:
        assert (followed.ids(), followed.ids(other)) == (["a"], ["b"])
        (tmp_path / other).write_text("rubbish\n")
        await followed.until(lambda: bool(followed.files.of(other).fault))
        assert (followed.ids(), followed.ids(other)) == (["a"], ["b"])
        assert not followed.files.of(UUID).fault
        assert followed.ids("GPU-of-another-node") == []


async def test_other_files_of_a_busy_folder_wake_nobody(tmp_path: Path) -> None:
    path = tmp_path / "rules"
    path.write_text(text("a"))
    async with following(path) as followed:
        for number in range(50):
            (tmp_path / f"other-{number}").touch()
        (tmp_path / "folder").mkdir()
        followed.watching._readable()
        assert not followed.watching._changed.is_set()
        path.write_text(text("b"))
        followed.watching._readable()
        assert followed.watching._changed.is_set()


async def test_without_inotify_the_file_is_polled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def none_left() -> None:
        raise OSError(24, "Too many open files", "inotify")

    monkeypatch.setattr(watching, "Inotify", none_left)
    path = tmp_path / "rules"
    async with following(path) as followed:
        path.write_text(text("a"))
        await followed.until(lambda: followed.ids() == ["a"])
    assert caplog.text.count("no watch (inotify: Too many open files)") == 1


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to(path.name)])
async def test_what_cannot_be_read_is_named(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "rules"
    make(path)
    async with following(path) as followed:
        assert f"{path} cannot be read: " in followed.files.of(UUID).fault


def test_faults_are_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "rules"
    path.write_text("1\na 0.8 0.5 9999999\n")
    files = ResourceFiles(path)
    for _ in range(3):
        files.read()
    assert caplog.text.count(f"{path}, line 2: ") == 1
    assert "no id is known yet" in caplog.text
    path.write_text("2\na 0.8 1 9999999\nb 0.7 1 9999999\n")
    for _ in range(3):
        files.read()
    assert caplog.text.count("add up to 1.5") == 1
    assert "its request divided by 1.5" in files.of(UUID).remarks[0]


def test_a_folder_in_place_of_a_file_costs_no_descriptors(tmp_path: Path) -> None:
    (tmp_path / "GPU-0").mkdir()
    files = ResourceFiles(tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        files.read()
    assert len(os.listdir("/proc/self/fd")) <= before  # Python may close what earlier tests left
    assert "no regular file" in files.of("GPU-0").fault
