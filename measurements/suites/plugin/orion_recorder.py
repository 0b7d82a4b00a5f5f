"""A pytest plugin that writes each test's outcome to a file at once, so that it survives a crash of the process.

It runs inside the processes of other projects' tests, so it imports nothing of Orion. Each line of the file is JSON:
["collected", number], ["begin", test] or [outcome, test, message].
"""

import fnmatch
import json
import os
from pathlib import Path
from typing import Any

import pytest

OUTPUT = Path(os.environ["ORION_SUITE_OUTCOMES"])
CHOICE = json.loads(Path(os.environ["ORION_SUITE_CHOICE"]).read_text())
MESSAGE_LENGTH = 240

_reports: list[Any] = []
_lines = OUTPUT.open("a", buffering=1)
_me = os.getpid()


def _write(*fields: object) -> None:
    if os.getpid() == _me:  # not in children that a test forks
        _lines.write(json.dumps(fields) + "\n")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests that the runner chose."""
    only, done = set(CHOICE["only"]), set(CHOICE["done"])
    kept = [
        item
        for item in items
        if item.nodeid not in done
        and (not only or item.nodeid in only)
        and not any(fnmatch.fnmatch(item.nodeid, pattern) for pattern in CHOICE["left_out"])
    ]
    dropped = set(items) - set(kept)
    config.hook.pytest_deselected(items=list(dropped))
    items[:] = kept


def pytest_collection_finish(session: pytest.Session) -> None:
    """Tell the runner that the tests begin."""
    _write("collected", len(session.items))


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Record a file that cannot be imported, or that skips itself as a whole, as if it were one test."""
    if report.outcome != "passed" and report.nodeid:
        _write("error" if report.failed else "skipped", report.nodeid, _message(report.longrepr))


def pytest_runtest_logstart(nodeid: str) -> None:
    """Name the test that runs: if the process dies, it is the one that did it."""
    _reports.clear()
    _write("begin", nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Collect the reports of the test's phases."""
    _reports.append(report)


def pytest_runtest_logfinish(nodeid: str) -> None:
    """Write the test's outcome."""
    outcome, message = "passed", ""
    for report in _reports:
        if report.outcome == "failed":
            outcome = "failed" if report.when == "call" else "error"
            message = _message(report.longrepr)
        elif report.outcome == "skipped" and outcome == "passed":
            outcome = "xfailed" if hasattr(report, "wasxfail") else "skipped"
            message = _message(report.longrepr)
    _write(outcome, nodeid, message)


def _message(what: Any) -> str:
    crash = getattr(what, "reprcrash", None)
    if crash is not None:
        return " ".join(crash.message.split())[:MESSAGE_LENGTH]
    return " ".join(str(what[-1] if isinstance(what, tuple) else what).split())[-MESSAGE_LENGTH:]
