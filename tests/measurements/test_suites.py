"""Others' test suites in three roles: how they are run, and how their outcomes are compared."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from measurements.suites import __main__ as command
from measurements.suites import page, reasons
from measurements.suites.catalogue import SUITES, Suite
from measurements.suites.files import OF_PROCESS, FileRun, Limits, run_file
from measurements.suites.outcomes import Comparison
from measurements.suites.parking import Stays
from orion.bench import raw_data
from orion.bench.managed import ManagedGPU
from tests.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
COMPATIBILITY = ROOT / "docs" / "compatibility.md"
OTHERS = Path(sys.prefix) / "others"

TROUBLED = """
import os, signal, time
import pytest
def test_first(): pass
def test_fails(): assert 1 == 2, "one is not two"
def test_crashes(): os.kill(os.getpid(), signal.SIGSEGV)
def test_between(): pass
def test_hangs(): time.sleep(600)
@pytest.mark.skip(reason="no reason")
def test_skipped(): pass
@pytest.mark.parametrize("number", [1, 2])
def test_last(number): pass
"""
BY_ROLE = """
import os, pathlib
def test_same(): pass
def test_hooked(): assert "liborion_hook" not in os.environ.get("LD_PRELOAD", "")
def test_first_time():
    seen = pathlib.Path(__file__).with_name("seen")
    known = seen.exists()
    seen.touch()
    assert known
"""
LEAVES = """
import ctypes, os, pathlib, time
def test_goes_on_until_its_process_has_been_away():
    cuda, context, memory = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64()
    assert cuda.cuInit(0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0 and cuda.cuCtxSetCurrent(context) == 0
    deadline = time.monotonic() + 60
    while "ORION_CONNECTIONS" in os.environ and not pathlib.Path("returned").exists():  # be
        assert time.monotonic() < deadline
        assert cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(1 << 20)) == 0
        assert cuda.cuMemFree_v2(memory) == 0
"""

IN_A_CLIENT = """
import ctypes, os, time
from orion.inprocess.scheduler import _bound
def test_runs_in_a_client_beside_another_one():
    cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    assert cuda.cuInit(0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0 and cuda.cuCtxSetCurrent(context) == 0
    role = os.environ.get("ORION_SUITE_ROLE", "none")
    assert (_bound.client.role if _bound.client else "none") == role
    deadline = time.monotonic() + 60
    while role != "none" and not _bound.client.scheduler.snapshot()[1].launches:
        assert time.monotonic() < deadline
"""


def test_a_file_continues_behind_tests_that_crash_or_hang(tmp_path: Path) -> None:
    (tmp_path / "test_troubled.py").write_text(TROUBLED)
    done = _run(tmp_path, "test_troubled.py", test_s=5.0)
    assert {test.partition("::")[2]: outcome for test, outcome in done.outcomes.items()} == {
        "test_first": "passed",
        "test_fails": "failed",
        "test_crashes": "crashed",
        "test_between": "passed",
        "test_hangs": "timed out",
        "test_skipped": "skipped",
        "test_last[1]": "passed",
        "test_last[2]": "passed",
        OF_PROCESS.removeprefix("::"): "passed",
    }
    assert "one is not two" in done.messages["test_troubled.py::test_fails"]
    assert "-11" in done.messages["test_troubled.py::test_crashes"]
    assert done.state == "finished"


def test_a_crash_after_the_last_test_is_an_outcome_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "test_end.py").write_text("import atexit, os\natexit.register(os.abort)\ndef test_one(): pass\n")
    done = _run(tmp_path, "test_end.py")
    assert done.outcomes == {"test_end.py::test_one": "passed", "test_end.py" + OF_PROCESS: "crashed"}


def test_a_file_that_cannot_be_imported_is_an_error_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "test_broken.py").write_text("import no_such_module\n")
    done = _run(tmp_path, "test_broken.py")
    assert done.outcomes["test_broken.py"] == "error"
    assert "no_such_module" in done.messages["test_broken.py"]


def test_a_file_that_always_crashes_is_given_up(tmp_path: Path) -> None:
    crashing = "@pytest.mark.parametrize('n', range(30))\ndef test_it(n): os.abort()\n"
    (tmp_path / "test_bad.py").write_text("import os, pytest\n" + crashing)
    done = _run(tmp_path, "test_bad.py")
    assert "given up" in done.state
    assert set(done.outcomes.values()) == {"crashed"}


def test_tests_that_are_left_out_do_not_run(tmp_path: Path) -> None:
    (tmp_path / "test_troubled.py").write_text(TROUBLED)
    patterns = ["*test_crashes*", "*test_hangs*", "*[[]2]"]
    limits = Limits(time.monotonic() + 100, 60.0, threading.Event())
    done = run_file(tmp_path, "test_troubled.py", os.environ, limits, patterns, [])
    assert not any(test.endswith(("test_crashes", "test_hangs", "[2]")) for test in done.outcomes)
    assert done.outcomes["test_troubled.py::test_last[1]"] == "passed"


def test_outcomes_are_compared_by_role_and_differing_tests_run_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "test_by_role.py").write_text(BY_ROLE)
    output = tmp_path / "raw.json.gz"
    record = _record_of_own_suite(output, monkeypatch)
    compared = Comparison(record)
    assert compared.different == ["test_by_role.py::test_hooked"]
    assert compared.again["test_by_role.py::test_hooked"] == "pff"
    assert compared.unsteady == ["test_by_role.py::test_first_time"]
    assert compared.alike == {"p": 1}
    assert record["packages"] == {"pytest": pytest.__version__}

    monkeypatch.setitem(reasons.REASONS, "own", {"*::test_hooked": "It looks for the hook."})
    assert page.main([str(output)]) == 1  # these tests call no driver, so no process joined
    raw_data.write(output, {**record, "joined": {"hp": 1, "be": 1}})
    assert page.main([str(output)]) == 0
    monkeypatch.setitem(reasons.REASONS, "own", {})
    assert page.main([str(output)]) == 1  # nobody has said why
    printed = capsys.readouterr().out
    assert "| own | `test_by_role.py::test_hooked` | passed | failed | failed | It looks for the hook. |" in printed
    assert "| own | `test_by_role.py::test_first_time` | failed | passed | passed | passed |" in printed


def test_tests_run_in_client_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "test_in_a_client.py").write_text(IN_A_CLIENT)
    record = _record_of_own_suite(tmp_path / "raw.json.gz", monkeypatch, "--threads")
    assert Comparison(record).alike == {"p": 1}, record
    assert "client threads" in capsys.readouterr().out


def test_be_processes_leave_the_gpu_and_come_back_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "test_leaves.py").write_text(LEAVES)
    look = Stays.look

    def look_and_say(stays: Stays, gpu: ManagedGPU) -> None:
        look(stays, gpu)
        if stays.returned:
            (tmp_path / "returned").touch()

    monkeypatch.setattr(Stays, "look", look_and_say)
    record = _record_of_own_suite(tmp_path / "raw.json", monkeypatch, "--parks")
    assert Comparison(record).alike == {"p": 1}
    assert record["stays"]["left"] >= record["stays"]["returned"] >= 1
    assert "be slots left the GPU" in capsys.readouterr().out


def test_ctrl_c_ends_the_tests_and_keeps_what_was_done(tmp_path: Path) -> None:
    folder = tmp_path / "cuda" / "tests"
    folder.mkdir(parents=True)
    hanging = "import os, pathlib, time\ndef test_done(): pass\ndef test_hangs():\n"
    hanging += "    pathlib.Path('process').write_text(str(os.getpid()))\n    time.sleep(600)\n"
    (folder / "test_hanging.py").write_text(hanging)
    output = tmp_path / "raw.json"
    options = ["--suite", "cuda-python-12", "--sources", str(tmp_path), "--output", str(output), "--simulated"]
    process = subprocess.Popen([sys.executable, "-m", "measurements.suites", *options], cwd=ROOT)
    try:
        eventually(lambda: (tmp_path / "process").exists() and (tmp_path / "process").read_text())
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    finally:
        process.kill()
        process.wait()
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "process").read_text()), 0)
    outcomes = raw_data.read(output)["outcomes"]
    assert outcomes["cuda/tests/test_hanging.py::test_done"] == "p--"


def test_a_folder_without_the_suite_is_refused_with_what_it_must_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["--suite", "cupy", "--sources", str(tmp_path), "--output", str(tmp_path / "raw.json")]) == 2
    assert "--sources must be the folder tests/ of CuPy's sources" in capsys.readouterr().err


@pytest.mark.skipif(not (OTHERS / "cuda").is_dir(), reason="cuda-python 12.6 has no wheel for this Python")
@pytest.mark.parametrize("parks", [False, True])
def test_cuda_pythons_own_tests_end_alike_in_all_roles(tmp_path: Path, parks: bool) -> None:
    # Its tests of NVRTC, which compiles kernels, are left out: that library is not here.
    only = ["test_cuda.py", "test_cudart.py", "test_interoperability.py", "test_cython.py"]
    options = ["--suite", "cuda-python-12", "--sources", str(OTHERS), "--output", str(tmp_path / "raw.json")]
    options += ["--parks"] if parks else []
    options += ["--simulated", "--together", *(word for name in only for word in ("--only", name))]
    assert command.main(options) == 0
    record = raw_data.read(tmp_path / "raw.json")
    compared = Comparison(record)
    assert page.unexplained(record) == []
    assert not {"c", "t"} & set("".join(compared.compared.values()))
    assert compared.alike["p"] >= 50
    assert all(record["joined"].values())


def test_the_page_has_the_tables_of_its_raw_data() -> None:
    text = COMPATIBILITY.read_text()
    files = {path: raw_data.read(path) for path in sorted((ROOT / "docs/results/raw").glob("suites-*.json.gz"))}
    assert files
    assert page.replaced(text, page.tables(files)) == text


def test_every_test_that_ends_differently_by_role_is_explained() -> None:
    records: list[dict[str, Any]] = [
        raw_data.read(path) for path in (ROOT / "docs/results/raw").glob("suites-*.json.gz")
    ]
    assert [test for record in records for test in page.unexplained(record)] == []


def _record_of_own_suite(output: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> dict[str, Any]:
    """Run the test files beside `output` as a suite, on a simulated GPU; return its raw data."""
    monkeypatch.setitem(SUITES, "own", Suite("Our own", "a folder", ("test_*.py",), ("pytest",)))
    usual = ["--suite", "own", "--sources", str(output.parent), "--output", str(output), "--simulated"]
    assert command.main([*usual, *options]) == 0
    return raw_data.read(output)


def _run(sources: Path, file: str, test_s: float = 60.0) -> FileRun:
    limits = Limits(time.monotonic() + 100, test_s, threading.Event())
    return run_file(sources, file, os.environ, limits, [], [])
