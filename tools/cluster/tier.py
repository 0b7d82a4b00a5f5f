"""Runs the cluster tier for `make test`, and leaves one line that says what became of it.

A run of its own, after the other tests: a control plane beside them would take CPU time from those that are about
time. Where there can be no control plane (no binaries, no Go, no network) the tier is named as not run, with the
reason; in CI that is a failure.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from tools.cluster import go_modules
from tools.cluster.binaries import Unavailable

NO_TEST_SELECTED = 5  # pytest's exit status


def _say(line: str) -> None:
    print(f"cluster: {line}", flush=True)


def run(arguments: list[str]) -> tuple[int, str]:
    """Run the tier with arguments for pytest; return an exit status and what became of it."""
    if "-m" in arguments:
        return 0, f"not run (left out by {' '.join(arguments)})"
    try:
        go_modules.build_missing(_say)
    except (Unavailable, OSError) as reason:
        _say(str(reason))
        first = str(reason).splitlines()[0]
        return (1 if os.environ.get("CI") else 0), f"not run ({first})"
    status = subprocess.run([sys.executable, "-m", "pytest", "-n", "2", "-m", "cluster", *arguments]).returncode
    if status == NO_TEST_SELECTED:
        return 0, f"not run (none of its tests is in {' '.join(arguments)})"
    part = f" in part ({' '.join(arguments)})" if arguments else ""
    return status, f"passed{part}" if status == 0 else "failed"


def main() -> int:
    """Run it, write the line, and fail if a test did."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None, allow_abbrev=False)
    parser.add_argument(
        "--outcome", type=Path, required=True, help="file for the line that says what became of the tier"
    )
    options, arguments = parser.parse_known_args()
    try:
        status, outcome = run(arguments)
    except KeyboardInterrupt:
        status, outcome = 130, "interrupted"
    options.outcome.parent.mkdir(parents=True, exist_ok=True)
    options.outcome.write_text(outcome)
    return status


if __name__ == "__main__":
    sys.exit(main())
