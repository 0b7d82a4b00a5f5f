"""Files that are replaced in one step."""

import os
from pathlib import Path

import pytest

from orion.atomic_files import UNFINISHED, replace_file


def test_a_file_is_written_and_replaced_and_who_has_it_open_keeps_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "file"
    replace_file(path, b"one")
    with path.open() as opened:
        replace_file(path, b"two", durable=True)
        assert opened.read() == "one"
    assert path.read_bytes() == b"two"
    assert [*tmp_path.iterdir()] == [path]


def test_the_mode_does_not_depend_on_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        replace_file(tmp_path / "file", b"", mode=0o755)
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o755


def test_a_failure_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("old")

    def refuse(*_: object) -> None:
        assert list(tmp_path.glob(UNFINISHED))
        raise OSError("the disk is full")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="full"):
        replace_file(tmp_path / "file", b"new")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


def test_a_private_file_is_never_readable_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modes = []
    opened = os.open

    def noted(path: Path, flags: int, mode: int) -> int:
        descriptor = opened(path, flags, mode)
        modes.append(os.fstat(descriptor).st_mode & 0o777)
        return descriptor

    monkeypatch.setattr(os, "open", noted)
    replace_file(tmp_path / "file", b"", mode=0o600)
    assert modes == [0o600]


def test_the_only_writer_replaces_what_an_earlier_one_has_left_behind(tmp_path: Path) -> None:
    path, left = tmp_path / "file", tmp_path / "file.new"
    left.write_text("a long part of an earlier file")
    replace_file(path, b"new", alone=True)
    assert path.read_bytes() == b"new"
    assert [*tmp_path.iterdir()] == [path]
