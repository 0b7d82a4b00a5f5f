"""Rereading the configuration file: which changes are reported, and which settings apply while the file is invalid."""

import os
from pathlib import Path

import pytest

from orion.crds.configuration_file import Change, ConfigurationFile
from orion.crds.node_configuration import SlotNumbers


def hp(file: ConfigurationFile) -> int:
    assert file.settings is not None
    return file.settings.slots.hp


def test_a_change_is_reported_once_and_only_if_it_concerns_this_node(tmp_path: Path) -> None:
    path = tmp_path / "nodes.yaml"
    path.write_text("{version: v1, slots: {hp: 1}}")
    file = ConfigurationFile(path, "here")
    assert (hp(file), file.look()) == (1, None)
    path.write_text("{version: v1, slots: {hp: 1}, nodes: {there: {slots: {hp: 5}}}}")
    assert file.look() is None
    path.write_text("{version: v1, slots: {hp: 1}, nodes: {here: {slots: {hp: 2}}}}")
    assert [file.look(), file.look()] == [Change.TAKEN, None]
    assert hp(file) == 2


def test_a_changed_file_of_the_same_size_and_time_is_read(tmp_path: Path) -> None:
    path = tmp_path / "nodes.yaml"
    path.write_text("{version: v1, slots: {hp: 1}}")
    file, before = ConfigurationFile(path, ""), path.stat()
    path.write_text("{version: v1, slots: {hp: 2}}")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file.look() is Change.TAKEN
    assert hp(file) == 2


@pytest.mark.parametrize("bad", ["{version: v1, slots: {hp: 65}}", "{version: v1, nodes: {x: 1}}", "[", None])
def test_an_invalid_file_is_reported_once_and_the_last_settings_apply(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, bad: str | None
) -> None:
    path, good = tmp_path / "nodes.yaml", "{version: v1, slots: {hp: 3}}"
    path.write_text(good)
    file = ConfigurationFile(path, "here")
    path.unlink() if bad is None else path.write_text(bad)
    assert [file.look(), file.look()] == [Change.REFUSED, None]
    assert hp(file) == 3
    assert str(path) in file.problem
    assert caplog.text.count("the last valid settings stay in force") == 1
    path.write_text(good)
    assert file.look() is None
    assert file.problem == ""
    path.unlink() if bad is None else path.write_text(bad)
    assert file.look() is Change.REFUSED


def test_a_file_that_is_created_later_is_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "nodes.yaml"
    file = ConfigurationFile(path, "")
    assert file.settings is None
    assert "cannot be read" in file.problem
    assert "nothing is advertised yet" in caplog.text
    path.write_text("version: v1")
    assert file.look() is Change.TAKEN
    assert file.settings is not None
    assert file.settings.slots == SlotNumbers()
