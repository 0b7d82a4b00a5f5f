"""The image's inputs: .dockerignore, the digest of the sources, and editions with other versions."""

from pathlib import Path, PurePosixPath

import pytest

from orion.hook.layout import LAYOUT_VERSION
from tools.image import sources
from tools.image.editions import NEWER, OLDER, THIS, Edition

RULES = "# words\n*\n!hook\n!pyproject.toml\n**/__pycache__\nhook/test\n"


def _tree(root: Path, *paths: str) -> Path:
    (root / ".dockerignore").write_text(RULES)
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(path)
    return root


def test_permitted_files_are_read(tmp_path: Path) -> None:
    tree = _tree(tmp_path, "hook/a.c", "hook/test/b.c", "hook/__pycache__/c.pyc", "pyproject.toml", "docs/d.md")
    assert sources.read(tree) == {"hook/a.c": b"hook/a.c", "pyproject.toml": b"pyproject.toml"}


def test_a_permitted_path_must_exist(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="hook"):
        sources.read(_tree(tmp_path, "pyproject.toml"))


@pytest.mark.parametrize("text", ["", "hook\n", "*\nhook/test\n!hook\n"])
def test_rules_in_another_form_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="dockerignore"):
        sources.Rules.read(text)


def test_a_folder_is_excluded_with_its_content() -> None:
    rules = sources.Rules.read(RULES)
    left_out = {
        path: rules.leave_out(PurePosixPath(path)) for path in ("hook/test", "hook/test/a/b", "hook/tests", "hook/a")
    }
    assert left_out == {"hook/test": True, "hook/test/a/b": True, "hook/tests": False, "hook/a": False}


def test_any_change_of_a_file_changes_the_digest() -> None:
    digests = [
        sources.digest(files, *more)
        for files, more in [
            ({"a": b"1", "b": b"2"}, ()),
            ({"a": b"1", "b": b"3"}, ()),
            ({"a": b"1b", "": b"2"}, ()),
            ({"a": b"1"}, ()),
            ({"a": b"1"}, ("Dockerfile",)),
        ]
    ]
    assert len(set(digests)) == len(digests)
    assert sources.digest({"b": b"2", "a": b"1"}) == digests[0]


def test_written_files_do_not_have_the_modes_of_this_checkout(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    tree = _tree(tmp_path / "tree", "hook/run", "hook/text")
    (tree / "hook/run").chmod(0o700)
    (tree / "hook/text").chmod(0o600)
    sources.write({"hook/run": b"", "hook/text": b""}, tmp_path / "copy", tree)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "copy").rglob("*")}
    assert modes == {"hook": 0o755, "run": 0o755, "text": 0o644}


def test_an_edition_changes_the_versions_in_the_sources() -> None:
    files = sources.read()
    assert THIS.of(files) == files
    older, newer = OLDER.of(files), NEWER.of(files)
    assert b'version = "0.0.9"' in older["pyproject.toml"]
    assert {path for path in files if files[path] != older[path]} == {"pyproject.toml"}
    assert f"ORION_LAYOUT_VERSION {LAYOUT_VERSION + 1}u".encode() in newer["hook/include/orion/policy.h"]
    assert {path for path in files if files[path] != newer[path]} == {
        "pyproject.toml", "hook/include/orion/policy.h", "hook/layout.py",
    }  # fmt: skip


def test_a_version_that_is_not_found_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"pyproject\.toml"):
        Edition(version="1.0").of({"pyproject.toml": b"[project]"})
