"""Suites that must be made first: programs that are built, and tests inside an installed package."""

import json
import os
import sys
import threading
import time
from pathlib import Path

import pytest

from measurements.suites import installed, samples
from measurements.suites.files import Limits, run_file

LISTS = """cmake_minimum_required(VERSION 3.20)
project({name} LANGUAGES C)
set(CMAKE_CUDA_ARCHITECTURES 75 80)
{more}
add_executable({name} {name}.c)
"""


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The sources of samples in C, with the samples' list of arguments."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    folder = tmp_path / "cuda-samples"
    for name, program in {
        "right": "int main(void) { return 0; }",
        "wrong": '#include <stdio.h>\nint main(void) { puts("it is off by one"); return 1; }',
        "waived": "int main(void) { return 2; }",
        "counts": "int main(int count, char **words) { (void)words; return count - 2; }",
        "broken": "int main(void) { return missing; }",
        "draws": "int main(void) { return 0; }",
        "skipped": "int main(void) { return 0; }",
    }.items():
        sample = folder / "Samples" / "0_First" / name
        sample.mkdir(parents=True)
        (sample / f"{name}.c").write_text(program)
        more = "find_package(OpenGL)" if name == "draws" else ""
        (sample / "CMakeLists.txt").write_text(LISTS.format(name=name, more=more))
    arguments = {"counts": {"runs": [{"args": ["one"]}, {"args": []}]}, "skipped": {"skip": True}}
    (folder / "test_args.json").write_text(json.dumps(arguments))
    return folder


def test_samples_become_one_test_for_each_run(
    sources: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    built = tmp_path / "built"
    assert samples.main(["--sources", str(sources), "--output", str(built), "--workers", "2"]) == 0
    assert "not built: broken" in capsys.readouterr().out
    done = run_file(built, "test_0_First.py", os.environ, _limits(), [], [])
    outcomes = {test.partition("::")[2]: outcome for test, outcome in done.outcomes.items()}
    assert {test: outcome for test, outcome in outcomes.items() if test.startswith("test_sample")} == {
        "test_sample[right]": "passed",
        "test_sample[wrong]": "failed",
        "test_sample[waived]": "skipped",
        "test_sample[counts one]": "passed",
        "test_sample[counts]": "failed",
    }
    assert "it is off by one" in done.messages["test_0_First.py::test_sample[wrong]"]
    assert not (sources / "Samples" / "0_First" / "right" / "build").exists()


def test_a_folder_without_samples_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    assert samples.main(["--sources", str(tmp_path / "empty"), "--output", str(tmp_path / "built")]) == 2
    assert "has no Samples/" in capsys.readouterr().err


def test_tests_inside_a_package_are_found_through_files_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = tmp_path / "packaged_tests" / "inner"
    inner.mkdir(parents=True)
    (inner.parent / "__init__.py").touch()
    (inner / "__init__.py").touch()
    (inner / "test_one.py").write_text("def test_here(): pass\n")
    (inner / "helper.py").write_text("raise RuntimeError\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    folder = tmp_path / "suite"
    assert installed.main(["packaged_tests", str(folder)]) == 0
    assert [path.name for path in folder.iterdir()] == ["test_inner_one.py"]
    done = run_file(folder, "test_inner_one.py", {**os.environ, "PYTHONPATH": str(tmp_path)}, _limits(), [], [])
    assert done.outcomes["test_inner_one.py::test_here"] == "passed"


def _limits() -> Limits:
    return Limits(time.monotonic() + 100, 60.0, threading.Event())
