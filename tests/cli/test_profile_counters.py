"""`orion profile kernels --counters`: classes from a second run under ncu, which a script replaces."""

import re
import stat
from pathlib import Path

import pytest

from orion.cli.profiling import counters
from orion.crds.profile import KernelClass

REPORT = """==PROF== Connected to process 7
"ID","Kernel Name","Block Size","Grid Size","sm__throughput.avg.pct_of_peak_sustained_elapsed"
"","","","","%"
"0","add(int *)","(256, 1, 1)","(4, 1, 1)","91.5"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def play_ncu(folder: Path, report: str, status: int = 0) -> None:
    """Install a fake ncu that runs the program and then writes this report to --log-file."""
    (folder / "answer").write_text(report)
    script = folder / "ncu"
    script.write_text(
        "#!/bin/sh\n"
        'while [ "$1" != --log-file ]; do shift; done\n'
        f'cp {folder}/answer "$2"; shift 2; "$@"; exit {status}\n'
    )
    script.chmod(stat.S_IRWXU)


def test_classes_come_from_ncus_run_of_the_program(folder: Path) -> None:
    play_ncu(folder, REPORT)
    report = counters.read_counters(["touch", str(folder / "ran")], folder)
    assert not isinstance(report, str)
    assert set(report.values()) == {KernelClass.COMPUTE}
    assert (folder / "ran").exists()


@pytest.mark.parametrize(
    ("report", "words"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access counters\n", "may not read them"),
        ("==ERROR== something else\n", "ncu ended with status 1: .*expected a table"),
    ],
)
def test_the_reason_for_missing_classes_is_one_sentence(folder: Path, report: str, words: str) -> None:
    play_ncu(folder, report, status=1)
    said = counters.read_counters(["true"], folder)
    assert isinstance(said, str)
    assert re.search(words, said)


def test_without_ncu_an_error_names_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(folder))
    assert counters.read_counters(["true"], folder) == "ncu (Nsight Compute) is not on the PATH"
