"""What the server of loaded modules starts is a process like any other."""

import os
import signal
from pathlib import Path

import pytest

from tests import loaded
from tests.waiting import DEADLINE

PROGRAM = """
import os, signal, sys
print(os.getcwd(), sorted(set(os.environ) - {'LC_CTYPE'}), sys.argv[1:], os.getpid(), flush=True)  # Python adds that
signal.pause()
"""


@pytest.fixture(params=["0", "1"])
def started_each_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(loaded.BY_PYTHON, request.param)


@pytest.mark.usefixtures("started_each_way")
def test_streams_and_exit_status(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        version = loaded.start("orion.cli", ["--version"], log)
        assert version.wait(DEADLINE) == 0
        wrong = loaded.start("orion.cli", ["agent", "--wrong"], log)
        assert wrong.wait(DEADLINE) == 2
    lines = (tmp_path / "log").read_text().splitlines()
    assert [line.partition(" ")[0] for line in lines] == ["orion", "orion:"]


@pytest.mark.usefixtures("started_each_way")
def test_folder_environment_and_signals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "paused_program.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    reads, writes = os.pipe()
    environment = {"ONLY": "this", **loaded.read_at_start(os.environ)}
    with os.fdopen(writes, "wb") as output:
        process = loaded.start("paused_program", ["word"], output, environment)
    with os.fdopen(reads) as lines:
        said = lines.readline()
        assert said == f"{tmp_path} {sorted(environment)} ['word'] {process.pid}\n"
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE) == -signal.SIGTERM
        assert lines.read() == ""
    assert process.poll() == -signal.SIGTERM
    process.kill()


def test_python_starts_what_has_other_variables_that_it_reads_at_its_start(tmp_path: Path) -> None:
    for name, value in (("PYTHONPATH", str(tmp_path)), ("LD_PRELOAD", ""), ("ORION_BASELINES", "1")):
        with (tmp_path / "log").open("wb") as log:
            process = loaded.start("orion.cli", ["--version"], log, {**os.environ, name: value})
        assert not isinstance(process, loaded.LoadedProcess)
        process.wait(DEADLINE)
