"""Runs the tests of one file, in a process of its own, and continues behind a test that crashes or hangs it."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

PLUGIN = Path(__file__).resolve().parent / "plugin"
CRASHES = 6  # a file whose tests end more processes than this is given up
LOOK_SECONDS = 0.1
START_SECONDS = 120.0  # for imports and collection; the limit of a test counts from then on
RAN_TESTS = (0, 1, 2, 5)  # exit statuses of pytest: passed, failed, a file that cannot be imported, no tests
OF_PROCESS = "::(the end of its process)"
""" The name of a test of our own: whether the process ended by itself after the file's last test. """


@dataclass
class Limits:
    """When to stop.

    Attributes:
        until: End of the time for this role, by time.monotonic.
        test_s: A test that takes longer is ended with its process.
        stop: Set on Ctrl-C.
    """

    until: float
    test_s: float
    stop: threading.Event

    def over(self) -> bool:
        """Say whether the role's time has ended."""
        return self.stop.is_set() or time.monotonic() > self.until


@dataclass
class FileRun:
    """What is known of a file's tests in one role: outcomes and messages by node id, and how the last process ended."""

    outcomes: dict[str, str] = field(default_factory=dict)
    messages: dict[str, str] = field(default_factory=dict)
    state: str = "not begun"

    def note(self, test: str, outcome: str, message: str) -> None:
        """Store one outcome."""
        self.outcomes[test] = outcome
        if message:
            self.messages[test] = message


def run_file(
    sources: Path, file: str, environment: Mapping[str, str], limits: Limits, left_out: list[str], only: list[str]
) -> FileRun:
    """Run a file's tests, with a new process after each test that ends one.

    Args:
        sources: The folder in which the tests run.
        file: The file, relative to `sources`.
        environment: Variables of the process; they decide the role.
        limits: When to stop.
        left_out: Patterns of node ids that are not run.
        only: Node ids that are run; empty: all.
    """
    run = FileRun()
    for _ in range(CRASHES):
        if limits.over():
            run.state = "the time was over"
            return run
        with tempfile.TemporaryDirectory(prefix="orion-suite-") as folder:
            ended = _one_process(sources, file, environment, limits, Path(folder), run, left_out, only)
        if ended:
            return run
    run.state = f"given up after {CRASHES} crashes"
    return run


def _one_process(
    sources: Path,
    file: str,
    environment: Mapping[str, str],
    limits: Limits,
    folder: Path,
    run: FileRun,
    left_out: list[str],
    only: list[str],
) -> bool:
    """Run one process; say whether the file needs no further one."""
    choice, outcomes, output = folder / "choice.json", folder / "outcomes", folder / "output"
    choice.write_text(json.dumps({"done": list(run.outcomes), "only": only, "left_out": left_out}))
    outcomes.touch()
    path = os.pathsep.join(filter(None, [str(PLUGIN), environment.get("PYTHONPATH", "")]))
    variables = {"ORION_SUITE_OUTCOMES": str(outcomes), "ORION_SUITE_CHOICE": str(choice), "PYTHONPATH": path}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "orion_recorder", "-p", "no:cacheprovider"]
    command += ["-c", str(PLUGIN / "pytest.ini"), f"--rootdir={sources}", f"--confcutdir={sources}"]
    command += [f"--basetemp={folder / 'temporary'}", file]
    with output.open("wb") as said:
        process = subprocess.Popen(
            command,
            cwd=sources,
            env={**environment, **variables, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,  # so that the processes that tests start end too
        )
    try:
        why = _wait(process, outcomes, limits)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    running = _read(outcomes, run)
    tail = output.read_text(errors="replace").strip()[-300:]
    return _judge(file, run, why or process.returncode, running, tail)


def _judge(file: str, run: FileRun, ended: int | str, running: str, tail: str) -> bool:
    if ended == "over":
        run.state = "the time was over"
        return True
    if running:
        hung = ended == "hung"
        run.note(running, "timed out" if hung else "crashed", "" if hung else f"the process ended with status {ended}")
        run.state = "crashed"
        return False
    by_itself = ended in RAN_TESTS
    if by_itself or run.outcomes:
        run.note(file + OF_PROCESS, "passed" if by_itself else "crashed", "" if by_itself else f"{ended}: {tail}")
        run.state = "finished"
    else:
        run.state = f"no test ran, {ended}: {tail}"
    return True


def _wait(process: subprocess.Popen[bytes], outcomes: Path, limits: Limits) -> str:
    """Wait for the end of a process; return "" when it came, or why the wait ended without it: "over" or "hung"."""
    size, since = 0, time.monotonic()
    while process.poll() is None:
        if limits.over():
            return "over"
        now = outcomes.stat().st_size
        if now != size:
            size, since = now, time.monotonic()
        if time.monotonic() - since > (limits.test_s if size else max(limits.test_s, START_SECONDS)):
            return "hung"
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(LOOK_SECONDS)
    return ""


def _read(outcomes: Path, run: FileRun) -> str:
    """Add the outcomes of a process; return the test that was running at its end, or ""."""
    running = ""
    for line in outcomes.read_text().splitlines():
        try:
            fields = json.loads(line)
        except ValueError:  # the process was killed while it wrote
            continue
        if fields[0] == "begin":
            running = fields[1]
        elif fields[0] != "collected":
            outcome, test, message = fields
            run.note(test, outcome, message)
            running = "" if test == running else running
    return running
