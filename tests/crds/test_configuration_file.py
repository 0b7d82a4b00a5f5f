"""Rereading the configuration file: which changes are reported, and which settings apply while the file is invalid."""

import os
from pathlib import Path

import pytest

from orion.crds.configuration_file import LABELS_FILE, Change, ConfigurationFile, write_labels
from orion.crds.node_configuration import SlotNumbers


def hp(file: ConfigurationFile) -> int:
    assert file.settings is not None
    return file.settings.slots.hp


def test_a_change_is_reported_once_and_only_if_it_concerns_this_node(tmp_path: Path) -> None:
    path = tmp_path / "nodes.yaml"
    path.write_text("{version: v1, slots: {hp: 1}}")
    labels = tmp_path / LABELS_FILE
    write_labels(labels, {"pool": "here"})
    file = ConfigurationFile(path, labels)
    assert (hp(file), file.look()) == (1, None)
    path.write_text("{version: v1, slots: {hp: 1}, nodes: [{matchLabels: {pool: there}, slots: {hp: 5}}]}")
    assert file.look() is None
    path.write_text("{version: v1, slots: {hp: 1}, nodes: [{matchLabels: {pool: here}, slots: {hp: 2}}]}")
    assert [file.look(), file.look()] == [Change.TAKEN, None]
    assert hp(file) == 2


def test_a_changed_file_of_the_same_size_and_time_is_read(tmp_path: Path) -> None:
    path = tmp_path / "nodes.yaml"
    path.write_text("{version: v1, slots: {hp: 1}}")
    file, before = ConfigurationFile(path, None), path.stat()
    path.write_text("{version: v1, slots: {hp: 2}}")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file.look() is Change.TAKEN
    assert hp(file) == 2


@pytest.mark.parametrize("bad", ["{version: v1, slots: {hp: 65}}", "{version: v1, nodes: [1]}", "[", None])
def test_an_invalid_file_is_reported_once_and_the_last_settings_apply(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, bad: str | None
) -> None:
    path, good = tmp_path / "nodes.yaml", "{version: v1, slots: {hp: 3}}"
    path.write_text(good)
    file = ConfigurationFile(path, None)
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
    file = ConfigurationFile(path, None)
    assert file.settings is None
    assert "cannot be read" in file.problem
    assert "nothing is advertised yet" in caplog.text
    path.write_text("version: v1")
    assert file.look() is Change.TAKEN
    assert file.settings is not None
    assert file.settings.slots == SlotNumbers()


def test_settings_by_labels_wait_until_the_labels_are_known(tmp_path: Path) -> None:
    path, labels = tmp_path / "nodes.yaml", tmp_path / LABELS_FILE
    path.write_text("{version: v1, nodes: [{matchLabels: {pool: a}, slots: {hp: 2}}]}")
    file = ConfigurationFile(path, labels)
    assert (file.settings, file.waits) == (None, True)
    assert "this node's are not known yet" in file.problem
    write_labels(labels, {"pool": "a"})
    assert [file.look(), file.look()] == [Change.TAKEN, None]
    assert (hp(file), file.waits, file.problem) == (2, False, "")
    write_labels(labels, {})
    assert file.look() is Change.TAKEN
    assert hp(file) == 1
    labels.unlink()
    assert file.look() is None
    assert hp(file) == 1


def test_labels_that_nothing_depends_on_are_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "nodes.yaml"
    path.write_text("{version: v1, slots: {hp: 2}}")
    file = ConfigurationFile(path, tmp_path / LABELS_FILE)
    assert (hp(file), file.waits, file.needs_labels) == (2, False, False)


def test_a_node_outside_a_cluster_has_no_labels(tmp_path: Path) -> None:
    path = tmp_path / "nodes.yaml"
    path.write_text("{version: v1, nodes: [{matchLabels: {pool: a}, slots: {hp: 2}}]}")
    file = ConfigurationFile(path, None)
    assert (hp(file), file.waits) == (1, False)


def test_labels_that_cannot_be_read_leave_the_last_settings(tmp_path: Path) -> None:
    path, labels = tmp_path / "nodes.yaml", tmp_path / LABELS_FILE
    path.write_text("{version: v1, nodes: [{matchLabels: {pool: a}, slots: {hp: 2}}]}")
    write_labels(labels, {"pool": "a"})
    file = ConfigurationFile(path, labels)
    labels.write_text("{")
    assert file.look() is Change.REFUSED
    assert file.problem.startswith(f"{labels} cannot be read: ")
    assert hp(file) == 2


@pytest.mark.parametrize("corrupt", [b"\xff", b"{", b"[]"])
def test_labels_that_are_corrupt_at_the_start_are_written_again(tmp_path: Path, corrupt: bytes) -> None:
    path, labels = tmp_path / "nodes.yaml", tmp_path / LABELS_FILE
    path.write_text("{version: v1, nodes: [{matchLabels: {pool: a}, slots: {hp: 2}}]}")
    labels.write_bytes(corrupt)
    file = ConfigurationFile(path, labels)
    assert file.settings is None
    assert file.problem.startswith(f"{labels} cannot be read: ")
    assert file.needs_labels, "the agent asks for the labels"
    write_labels(labels, {"pool": "a"})
    assert file.look() is Change.TAKEN
    assert hp(file) == 2


def test_labels_whose_file_cannot_be_opened_are_named(tmp_path: Path) -> None:
    path, labels = tmp_path / "nodes.yaml", tmp_path / LABELS_FILE
    path.write_text("{version: v1, slots: {hp: 2}}")
    labels.mkdir()
    assert ConfigurationFile(path, labels).problem.startswith(f"{labels} cannot be read: ")
