"""Runs one tier of tests for `make test`, and leaves one line that says what became of it.

Tests about time come first, then the others that need no cluster, and then the tiers that have clusters, side by side:
a control plane beside them would take CPU time from tests about time. Where there can be no control plane (no binaries,
no Go, no network) or no node (no root, no packages) the tier is named as not run, with the reason; in CI that is a
failure.
"""

import argparse
import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from testbed import cgroups, go_modules, packages
from testbed.binaries import HELM, Say, Unavailable
from tools import image
from tools.image.programs import Failed

TESTS = Path("tests")
NO_TEST_SELECTED = 5  # pytest's exit status


@dataclass(frozen=True)
class Tier:
    """A tier: which tests, how pytest spreads them, how their needs are brought, and what it leaves untested."""

    marks: str
    """ Of its tests, an expression (pytest -m). """
    workers: int
    spread: str
    """ Of pytest-xdist (--dist). """
    bring: Callable[[Say], None] = lambda say: None
    untested: Callable[[], str] = lambda: ""


def _bring_helm(say: Say) -> None:
    with contextlib.suppress(Unavailable):  # tests of the chart say so, and others need none
        go_modules.build_missing(say, [HELM])


def _bring_node(say: Say) -> None:
    packages.bring_missing(say)  # first, as it knows within seconds that there can be no node
    go_modules.build_missing(say)
    for edition in (image.THIS, image.NEWER):  # minutes on a new machine: no test's time limit is made for it
        image.build(say, edition)


def _other_mode() -> str:
    here = cgroups.mode()
    return f" on cgroup {here} (cgroup {'v2' if here == 'v1' else 'v1'} not tested)"


# What needs more than this machine's CPU and root; gpu is never part of `make test`.
_OUTSIDE = "cluster or gpu or node"
TIERS = {
    "quiet": Tier(f"quiet and not ({_OUTSIDE})", 2, "worksteal"),
    "host": Tier(f"not (quiet or {_OUTSIDE})", 4, "worksteal", _bring_helm),
    "cluster": Tier("cluster", 2, "worksteal", lambda say: go_modules.build_missing(say)),
    # A cluster for each worker, and there one test after the other: they count what is on its node, and restart what
    # runs there. Tests of a file stay together (Scenes in tests/conftest.py).
    "node": Tier("node", 2, "loadscope", _bring_node, _other_mode),
}


def _files(name: str) -> list[str]:
    """Return the files that have a tier's mark written in them (tests/conftest.py sees to it).

    To import all takes each worker ten seconds.
    """
    if name == "host":
        return []
    return [str(path) for path in sorted(TESTS.rglob("test_*.py")) if f"mark.{name}" in path.read_text()]


def run(name: str, arguments: list[str], results: Path | None = None, *, thorough: bool = False) -> tuple[int, str]:
    """Run a tier with arguments for pytest; return an exit status and what became of it.

    Where `results` names a file, pytest writes each test's outcome and duration there, as JUnit XML. Tests with the
    mark `thorough` (further cases of a test that runs anyway; the end of the testbed itself) run only if asked for.
    """
    tier = TIERS[name]
    if "-m" in arguments and name != "host":  # which has the last word about marks
        return 0, f"not run (left out by {' '.join(arguments)})"

    def say(line: str) -> None:
        print(f"{name}: {line}", flush=True)

    try:
        tier.bring(say)
    except (Unavailable, OSError) as reason:
        say(str(reason))
        first = str(reason).splitlines()[0]
        return (1 if os.environ.get("CI") else 0), f"not run ({first})"
    except Failed as reason:
        say(str(reason))
        return 1, "failed (what its tests need could not be built)"
    command = [sys.executable, "-m", "pytest", "-n", str(tier.workers), "--dist", tier.spread]
    command += ["-m", tier.marks if thorough else f"({tier.marks}) and not thorough"]
    if results is not None:
        command.append(f"--junitxml={results}")
    status = subprocess.run([*command, *(arguments or _files(name))]).returncode
    if status == NO_TEST_SELECTED:
        return 0, f"not run (none of its tests is in {' '.join(arguments)})"
    part = f" in part ({' '.join(arguments)})" if arguments else ""
    sample = "" if thorough else " without the thorough ones"
    return status, f"passed{part}{sample}{tier.untested()}" if status == 0 else "failed"


def main() -> int:
    """Run it, write the line, and fail if a test did."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None, allow_abbrev=False)
    parser.add_argument("tier", choices=sorted(TIERS), help="which one")
    parser.add_argument("--outcomes", type=Path, help="folder for the line that says what became of it")
    parser.add_argument("--bring-only", action="store_true", help="bring what its tests need, where it can be had")
    parser.add_argument("--thorough", action="store_true", help="run the tests with the mark thorough, too")
    options, arguments = parser.parse_known_args()
    if options.bring_only:
        with contextlib.suppress(Unavailable, OSError, Failed):  # the tier itself says so
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
