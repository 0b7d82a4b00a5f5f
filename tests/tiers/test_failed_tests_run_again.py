"""A tier's tests that fail beside others run once more, one after another."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tools.tiers import run as tiers

TESTS = """
from pathlib import Path

def test_passes():
    pass

def test_fails_at_first(tmp_path_factory):
    before = Path(__file__).with_suffix(".ran")
    if not before.exists():
        before.touch()
        raise AssertionError

def test_fails():
    assert not Path(__file__).with_suffix(".broken").exists()
"""


def outcome(folder: Path, *, again: bool = True) -> tuple[int, str, list[str]]:
    path, said = folder / "test_of_a_tier.py", list[str]()
    path.write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-c", str(folder / "pytest.ini"), str(path)]
    (folder / "pytest.ini").write_text("[pytest]\n")
    cache, results = folder / "cache", folder / "results.xml"
    status, words = tiers._test(replace(tiers.TIERS["quiet"], again=again), command, cache, results, said.append)
    assert "test_passes" in results.read_text()
    return status, words, said


def test_a_test_that_passes_then_is_named(tmp_path: Path) -> None:
    status, words, said = outcome(tmp_path)
    assert status == 0
    assert words == "; failed beside others, and passed when they ran again: test_of_a_tier.py::test_fails_at_first"
    assert said == ["what failed runs again, one test after another: test_of_a_tier.py::test_fails_at_first"]


def test_a_test_that_fails_again_fails_the_tier(tmp_path: Path) -> None:
    (tmp_path / "test_of_a_tier.broken").touch()
    assert outcome(tmp_path)[0] == tiers.TESTS_FAILED


@pytest.mark.parametrize("again", [True, False])
def test_nothing_runs_again_if_all_pass(tmp_path: Path, again: bool) -> None:
    (tmp_path / "test_of_a_tier.ran").touch()
    assert outcome(tmp_path, again=again) == (0, "", [])


def test_the_host_tier_fails_at_once(tmp_path: Path) -> None:
    assert not tiers.TIERS["host"].again
    assert outcome(tmp_path, again=False) == (tiers.TESTS_FAILED, "", [])
