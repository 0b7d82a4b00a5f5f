"""Runs one tier of tests for `make test`, and writes one line with its outcome.

Tests about time run first, because a control plane would take CPU time from them. The other tiers run side by side
after these. Tests about time, and tests of real clusters, whose waits have deadlines, can fail because others run
beside them. Those that fail run once more, one after another and with
no other tier beside them; of tests that depend on each other, the whole scene does. The tier fails if one fails again;
else its outcome names them. If a machine cannot run a control plane (no binaries, no Go, no network) or a node (no
root, no packages), the tier's outcome is "not run", with the reason; in CI it is a failure.
"""

import argparse
import contextlib
import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from testbed import cgroups, go_modules, neighbours, packages
from testbed.binaries import HELM, Say
from testbed.errors import Failed, Missing
from tools import image
from tools.tiers.scenes import scene

TESTS = Path("tests")
CACHE = Path(".pytest_cache").resolve()
TESTS_FAILED, NO_TEST_SELECTED = 1, 5  # exit statuses of pytest


@dataclass(frozen=True)
class Tier:
    """A tier: its tests, how pytest distributes them, how their programs are installed, and what it does not test."""

    marks: str
    """ Expression that selects its tests (pytest -m). """
    workers: int
    spread: str
    """ Distribution of pytest-xdist (--dist). """
    bring: Callable[[Say], None] = lambda say: None
    untested: Callable[[], str] = lambda: ""
    again: bool = True
    """ Whether tests that failed run once more, alone. """
    outside: bool = False
    """ Whether its tests may connect to servers outside this machine. """


def _bring_helm(say: Say) -> None:
    with contextlib.suppress(Missing):  # tests of the chart report that Helm is missing; other tests need no Helm
        go_modules.build_missing(say, [HELM])


def _bring_node(say: Say) -> None:
    packages.bring_missing(say)  # first, because it detects within seconds that no node can run here
    go_modules.build_missing(say)
    for edition in (image.THIS, image.NEWER):  # takes minutes on a new machine, more than a test's time limit
        image.build(say, edition)


def _bring_neighbours(say: Say) -> None:
    packages.bring_missing(say)
    go_modules.build_missing(say)
    neighbours.build_missing(say)


def _other_mode() -> str:
    here = cgroups.mode()
    return f" on cgroup {here} (cgroup {'v2' if here == 'v1' else 'v1'} not tested)"


# Tests that need more than this machine's CPU and root; gpu is never part of `make test`.
_OUTSIDE = "cluster or gpu or neighbours or node"
TIERS = {
    "quiet": Tier(f"quiet and not ({_OUTSIDE})", 2, "worksteal"),
    "host": Tier(f"not (quiet or {_OUTSIDE})", 4, "worksteal", _bring_helm, again=False),
    "cluster": Tier("cluster", 2, "worksteal", lambda say: go_modules.build_missing(say)),
    # Each worker has its own cluster and runs its tests one by one, because they count what is on the node and restart
    # programs there. Tests of a file stay together (Scenes in tests/conftest.py).
    "node": Tier("node", 2, "loadscope", _bring_node, _other_mode, outside=True),
    # Not part of `make test`: the controllers take too long to build. One worker, since they all share one cluster.
    "neighbours": Tier("neighbours", 1, "loadscope", _bring_neighbours, again=False, outside=True),
}
# Programs that import aiohttp read all certificate authorities of the machine twice, which takes 0.1 s of CPU. Programs
# that connect to no server outside need none.
NO_AUTHORITIES = {"SSL_CERT_FILE": os.devnull, "SSL_CERT_DIR": os.devnull}
# A control plane's programs collect garbage at four times the usual intervals: for 0.2 GB of memory, a start and all
# work after it take a fifth less CPU time.
SELDOM_COLLECTED = {"GOGC": "400"}


def _files(name: str) -> list[str]:
    """Return the files that contain a tier's mark (tests/conftest.py enforces that the mark is in the file).

    Importing all test files takes each worker ten seconds.
    """
    if name == "host":
        return []
    return [str(path) for path in sorted(TESTS.rglob("test_*.py")) if f"mark.{name}" in path.read_text()]


@contextlib.contextmanager
def _running(cache: Path, *, alone: bool) -> Iterator[None]:
    """Let no tier run tests beside others that must be alone."""
    cache.parent.mkdir(parents=True, exist_ok=True)
    with open(cache.parent / "tiers", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield


def _test(
    tier: Tier, command: list[str], tests: list[str], cache: Path, results: Path | None, say: Say
) -> tuple[int, str]:
    """Run tests, and those that failed again; return an exit status, and which passed only then.

    `cache` is where pytest remembers what failed: tiers that run side by side need one each, in one folder.
    """
    command = [*command, "-o", f"cache_dir={cache}"]
    environment = os.environ | SELDOM_COLLECTED | ({} if tier.outside else NO_AUTHORITIES)
    report = [f"--junitxml={results}"] if results is not None else []
    with _running(cache, alone=False):
        first = [*command, *tests, *report, "-n", str(tier.workers), "--dist", tier.spread]
        status = subprocess.run(first, env=environment).returncode
    if status != TESTS_FAILED or not tier.again:
        return status, ""
    failed = sorted(json.loads((cache / "v/cache/lastfailed").read_text()))
    say(f"what failed runs again, alone and one test after another: {', '.join(failed)}")
    again = sorted({scene(test) for test in failed}) if tier.spread == "loadscope" else [*tests, "--last-failed"]
    with _running(cache, alone=True):
        status = subprocess.run([*command, *again, "-n", "0", "--exitfirst"], env=environment).returncode
    return TESTS_FAILED if status else 0, f"; failed beside others, and passed alone: {', '.join(failed)}"


def run(name: str, arguments: list[str], results: Path | None = None, *, thorough: bool = False) -> tuple[int, str]:
    """Run a tier with arguments for pytest; return an exit status and the outcome.

    If `results` names a file, pytest writes each test's first outcome and duration there, as JUnit XML. Tests with the
    mark `thorough` (further cases of a test that always runs; how the testbed itself ends) run only with `thorough`.
    """
    tier = TIERS[name]
    if "-m" in arguments and name != "host":  # only the host tier honours marks from the command line
        return 0, f"not run (left out by {' '.join(arguments)})"

    def say(line: str) -> None:
        print(f"{name}: {line}", flush=True)

    try:
        tier.bring(say)
    except (Missing, OSError) as reason:
        say(str(reason))
        first = str(reason).splitlines()[0]
        return (1 if os.environ.get("CI") else 0), f"not run ({first})"
    except Failed as reason:
        say(str(reason))
        return 1, "failed (what its tests need could not be built)"
    command = [sys.executable, "-m", "pytest", "-m", tier.marks if thorough else f"({tier.marks}) and not thorough"]
    status, again = _test(tier, command, arguments or _files(name), CACHE / name, results, say)
    if status == NO_TEST_SELECTED:
        return 0, f"not run (none of its tests is in {' '.join(arguments)})"
    part = f" in part ({' '.join(arguments)})" if arguments else ""
    sample = "" if thorough else " without the thorough ones"
    return status, f"passed{part}{sample}{tier.untested()}{again}" if status == 0 else "failed"


def main() -> int:
    """Run the tier and write its outcome; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None, allow_abbrev=False)
    parser.add_argument("tier", choices=sorted(TIERS), help="which tier")
    parser.add_argument("--outcomes", type=Path, help="folder for the line with the tier's outcome")
    parser.add_argument("--bring-only", action="store_true", help="only install what its tests need, if possible")
    parser.add_argument("--thorough", action="store_true", help="also run the tests with the mark thorough")
    options, arguments = parser.parse_known_args()
    if options.bring_only:
        with contextlib.suppress(Missing, OSError, Failed):  # the tier itself reports the reason
            TIERS[options.tier].bring(print)
        return 0
    results = None
    if options.outcomes:
        options.outcomes.mkdir(parents=True, exist_ok=True)
        results = options.outcomes / f"{options.tier}.xml"
    try:
        status, outcome = run(options.tier, arguments, results, thorough=options.thorough)
    except KeyboardInterrupt:
        status, outcome = 130, "interrupted"
    if options.outcomes:
        (options.outcomes / options.tier).write_text(outcome)
    return status


if __name__ == "__main__":
    sys.exit(main())
