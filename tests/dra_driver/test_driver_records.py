"""The driver's records while another driver writes them, and after somebody has removed them."""

import asyncio
import errno
import os
import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orion.dra_driver.cdi_files import CdiFiles
from orion.dra_driver.claim_locks import ClaimLocks
from orion.dra_driver.claims import Pod
from orion.dra_driver.preparing import Preparer
from orion.dra_driver.reconciling import Reconciling
from orion.dra_driver.records import GivenShare, Record, Records


def record(uid: str, slot: str = "GPU-0::be-0", boot: str = "this") -> Record:
    share = GivenShare(
        request="gpu", pool="node", device="gpu-0", share_id="1", role="be", time_milli=0, memory_bytes=0, slot_id=slot
    )
    return Record(boot=boot, uid=uid, namespace="team", name=uid, pods=(Pod(name="p", uid="u"),), shares=(share,))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "claims"


def loaded(folder: Path) -> Records:
    records = Records(folder)
    records.load()
    return records


def test_a_driver_sees_what_another_one_writes_changes_and_removes(folder: Path) -> None:
    old, new = loaded(folder), loaded(folder)
    new.save(record("a"))
    assert old.of("a") is None
    old.refresh()
    assert old.of("a") == record("a")
    new.save(record("a", slot="GPU-0::be-1"))
    new.save(record("b"))
    old.refresh()
    assert {each.uid: each.shares[0].slot.name for each in old.all()} == {"a": "be-1", "b": "be-0"}
    new.remove("a")
    old.refresh()
    assert [each.uid for each in old.all()] == ["b"]


def test_records_are_read_again_only_if_they_have_changed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = loaded(folder)
    records.save(record("a"))
    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", lambda _: pytest.fail("the record is read again"))
        records.refresh()
    assert records.of("a") == record("a")


def test_a_record_that_another_call_saves_while_the_folder_is_read_stays_known(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = loaded(folder)
    (tmp_path / "empty").mkdir()
    before = os.scandir(tmp_path / "empty")

    def listed(_: Path) -> object:
        records.save(record("a"))
        return before

    monkeypatch.setattr(os, "scandir", listed)
    records.refresh()
    assert records.of("a") == record("a")


def test_a_folder_that_somebody_removes_is_written_again(folder: Path) -> None:
    records = loaded(folder)
    records.save(record("a"))
    shutil.rmtree(folder)
    records.save(record("b"))
    assert {each.uid for each in loaded(folder).all()} == {"a", "b"}
    shutil.rmtree(folder)
    records.refresh()
    assert {each.uid for each in loaded(folder).all()} == {"a", "b"}


def test_a_driver_that_starts_leaves_what_another_one_is_writing(folder: Path) -> None:
    loaded(folder)
    writing, left = folder / ".a.1.new", folder / ".b.2.new"
    for path in (writing, left):
        path.write_text("")
    os.utime(left, (time.time() - 120, time.time() - 120))
    loaded(folder)
    assert writing.exists()
    assert not left.exists()


def out_of_files(_: Path) -> bytes:
    raise OSError(errno.EMFILE, "Too many open files")


def test_a_record_that_could_not_be_read_once_is_read_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded(folder).save(record("a"))
    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", out_of_files)
        records = loaded(folder)
        records.refresh()
        assert (records.all(), [*records.unread]) == ([], ["a"])
    records.refresh()
    assert (records.all(), [*records.unread]) == ([record("a")], [])


def test_while_a_record_cannot_be_read_nothing_is_swept_and_the_agent_does_not_know_all(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded(folder).save(record("a"))
    swept: list[set[Path]] = []
    notified: list[str] = []

    def sweep(named: Iterable[Path]) -> None:
        swept.append(set(named))

    async def tell(each: Record) -> None:
        notified.append(each.uid)

    unused, places = cast("Any", None), cast("Any", SimpleNamespace(files=SimpleNamespace(touch=int, sweep=sweep)))
    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", out_of_files)
        records, locks = loaded(folder), ClaimLocks()
        preparer = Preparer(
            unused, unused, unused, unused, unused, records, CdiFiles(folder), places, unused, "this", locks, unused
        )
        giving = cast("Any", SimpleNamespace(tell_again=tell))
        reconciling = Reconciling(unused, unused, giving, records, preparer, locks)
        assert not asyncio.run(reconciling.tell_agent())
        asyncio.run(preparer.sweep())
        assert (notified, swept) == ([], [])
    assert asyncio.run(reconciling.tell_agent())
    asyncio.run(preparer.sweep())
    assert (notified, swept) == (["a"], [set()])


def test_nothing_is_swept_while_a_claim_has_a_cdi_file_and_its_record_cannot_be_used(
    folder: Path, tmp_path: Path
) -> None:
    folder.mkdir()
    (folder / "a.json").write_text('{"version": 2}')
    records, files = loaded(folder), CdiFiles(tmp_path / "cdi")
    swept: list[set[Path]] = []
    unused = cast("Any", None)
    places = cast("Any", SimpleNamespace(files=SimpleNamespace(touch=int, sweep=swept.append)))
    preparer = Preparer(
        unused, unused, unused, unused, unused, records, files, places, unused, "this", ClaimLocks(), unused
    )
    files.write("a", {})  # a container that starts again mounts what it names
    asyncio.run(preparer.sweep())
    assert swept == []
    files.remove("a")
    asyncio.run(preparer.sweep())
    assert swept == [set()]


def test_a_folder_of_records_that_cannot_be_read_ends_no_sweep(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    records, unused = loaded(folder), cast("Any", None)
    records.save(record("a"))
    reconciling = Reconciling(unused, unused, unused, records, unused, ClaimLocks())
    monkeypatch.setattr(os, "scandir", out_of_files)
    asyncio.run(reconciling.remove_gone())
    assert "Too many open files" in caplog.text


def test_a_folder_in_the_place_of_a_record_is_no_record_and_keeps_nothing_from_the_sweep(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    loaded(folder).save(record("a"))
    (folder / "b.json").mkdir()
    records = loaded(folder)
    records.refresh()
    assert (records.all(), [*records.unread]) == ([record("a")], [])
    assert len([each for each in caplog.messages if "b.json cannot be used" in each]) == 1
