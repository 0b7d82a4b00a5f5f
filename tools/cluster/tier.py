"""Runs the cluster tier or the node tier for `make test`, and leaves one line that says what became of it.

Runs of their own, after the other tests: a control plane beside them would take CPU time from those that are about
time. The tiers themselves wait more than they compute, and each has control planes of its own: they may run side by
side. Where there can be no control plane (no binaries, no Go, no network) or no node (no root, no packages) the tier is
named as not run, with the reason; in CI that is a failure.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tools import image
from tools.cluster import cgroups, go_modules, packages
from tools.cluster.binaries import Say, Unavailable
from tools.image.programs import Failed

NO_TEST_SELECTED = 5  # pytest's exit status


@dataclass(frozen=True)
class Tier:
    """A tier: its mark, how pytest spreads it, how its needs are brought, and what it leaves untested as it passes."""

    mark: str
    workers: int
    spread: str
    """ Of pytest-xdist (--dist). """
    bring: Callable[[Say], None]
    untested: Callable[[], str] = lambda: ""


def _bring_node(say: Say) -> None:
    packages.bring_missing(say)  # first, as it knows within seconds that there can be no node
    go_modules.build_missing(say)
    for edition in (image.THIS, image.NEWER):  # minutes on a new machine: no test's time limit is made for it
        image.build(say, edition)


def _other_mode() -> str:
    here = cgroups.mode()
    return f" on cgroup {here} (cgroup {'v2' if here == 'v1' else 'v1'} not tested)"


TIERS = {
    "cluster": Tier("cluster", 2, "worksteal", lambda say: go_modules.build_missing(say)),
    # A cluster for each worker, and there one test after the other: they count what is on its node, and restart what
    # runs there. Tests of a file stay together (Scenes in tests/conftest.py).
    "node": Tier("node", 2, "loadscope", _bring_node, _other_mode),
}


def run(tier: Tier, arguments: list[str]) -> tuple[int, str]:
    """Run a tier with arguments for pytest; return an exit status and what became of it."""
    if "-m" in arguments:
        return 0, f"not run (left out by {' '.join(arguments)})"

    def say(line: str) -> None:
        print(f"{tier.mark}: {line}", flush=True)

    try:
        tier.bring(say)
    except (Unavailable, OSError) as reason:
        say(str(reason))
        first = str(reason).splitlines()[0]
        return (1 if os.environ.get("CI") else 0), f"not run ({first})"
    except Failed as reason:
        say(str(reason))
        return 1, "failed (what its tests need could not be built)"
    spread = ["-n", str(tier.workers), "--dist", tier.spread]
    status = subprocess.run([sys.executable, "-m", "pytest", *spread, "-m", tier.mark, *arguments]).returncode
    if status == NO_TEST_SELECTED:
        return 0, f"not run (none of its tests is in {' '.join(arguments)})"
    part = f" in part ({' '.join(arguments)})" if arguments else ""
    return status, f"passed{part}{tier.untested()}" if status == 0 else "failed"


def main() -> int:
    """Run it, write the line, and fail if a test did."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None, allow_abbrev=False)
    parser.add_argument("tier", choices=sorted(TIERS), help="which one")
    parser.add_argument(
        "--outcome", type=Path, required=True, help="file for the line that says what became of the tier"
    )
    options, arguments = parser.parse_known_args()
    try:
        status, outcome = run(TIERS[options.tier], arguments)
    except KeyboardInterrupt:
        status, outcome = 130, "interrupted"
    options.outcome.parent.mkdir(parents=True, exist_ok=True)
    options.outcome.write_text(outcome)
    return status


if __name__ == "__main__":
    sys.exit(main())
