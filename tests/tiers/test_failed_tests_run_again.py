"""A tier's tests that fail beside others run once more, alone; with them run the tests that they depend on."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tools.tiers import run as tiers

TESTS = """
import fcntl
from pathlib import Path

import pytest

RAN, BROKEN, BEGUN = (Path(__file__).with_suffix(each) for each in (".ran", ".broken", ".begun"))

def test_passes():
    BEGUN.touch()

def test_fails_at_first():
    lock = open(Path(__file__).parent / "tiers")
    if not RAN.exists():
        RAN.touch()
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)  # other tiers may run
        BEGUN.unlink()
        raise AssertionError
    with pytest.raises(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)

def test_fails():
    assert not BROKEN.exists()
"""
NEEDS_ANOTHER = """
def test_needs_the_first():
    assert BEGUN.exists()
"""
FAILED = "test_of_a_tier.py::test_fails_at_first"


def outcome(folder: Path, tier: str = "cluster", *, again: bool = True, tests: str = TESTS) -> tuple[int, str, str]:
    path, said = folder / "test_of_a_tier.py", list[str]()
    path.write_text(tests)
    command = [sys.executable, "-m", "pytest", "-q", "-c", str(folder / "pytest.ini"), f"--rootdir={folder}"]
    (folder / "pytest.ini").write_text("[pytest]\n")
    results = folder / "results.xml"
    run = replace(tiers.TIERS[tier], again=again, workers=1)
    status, words = tiers._test(run, command, [str(path)], folder / "cache", results, said.append)
    assert "test_passes" in results.read_text()
    return status, words, "".join(said)


def test_a_test_that_passes_then_is_named(tmp_path: Path) -> None:
    status, words, said = outcome(tmp_path)
    assert status == 0
    assert words == f"; failed beside others, and passed alone: {FAILED}"
    assert said == f"what failed runs again, alone and one test after another: {FAILED}"


def test_a_test_that_fails_again_fails_the_tier(tmp_path: Path) -> None:
    (tmp_path / "test_of_a_tier.broken").touch()
    assert outcome(tmp_path)[0] == tiers.TESTS_FAILED


@pytest.mark.parametrize("again", [True, False])
def test_nothing_runs_again_if_all_pass(tmp_path: Path, again: bool) -> None:
    (tmp_path / "test_of_a_tier.ran").touch()
    lone = TESTS.replace("with pytest.raises(BlockingIOError):", "if True:")
    assert outcome(tmp_path, again=again, tests=lone) == (0, "", "")


def test_the_host_tier_fails_at_once(tmp_path: Path) -> None:
    assert not tiers.TIERS["host"].again
    assert outcome(tmp_path, again=False) == (tiers.TESTS_FAILED, "", "")


def test_a_scene_runs_again_from_its_first_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # node ids are relative to the folder from which make runs the tiers
    monkeypatch.setenv("PYTHONPATH", str(Path(tiers.__file__).parents[2]))
    status, words, _ = outcome(tmp_path, "node", tests=TESTS + NEEDS_ANOTHER)
    assert (status, words.count("test_needs_the_first")) == (0, 1)
