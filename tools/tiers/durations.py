"""Lists the slowest tests of the last `make test`: the first candidates when the suite must get faster.

Each tier writes its results as JUnit XML beside its outcome. A test's duration includes the set-up and tear-down of its
fixtures; a fixture that several tests share counts for the first of them.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree


def durations(outcomes: Path) -> Iterator[tuple[float, str, str]]:
    """Yield the duration in seconds, the tier and the name of each test in the results of a folder."""
    for file in sorted(outcomes.glob("*.xml")):
        for case in ElementTree.parse(file).iter("testcase"):
            yield float(case.get("time", "0")), file.stem, f"{case.get('classname')}::{case.get('name')}"


def main() -> int:
    """Print the slowest tests, then the total duration of each tier."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--outcomes", type=Path, required=True, help="folder in which each tier wrote its results")
    parser.add_argument("--most", type=int, default=20, help="how many tests to list (default: %(default)s)")
    options = parser.parse_args()
    found = sorted(durations(options.outcomes), reverse=True)
    if not found:
        print(f"no results in {options.outcomes}: run `make test` first", file=sys.stderr)
        return 1
    for seconds, tier, name in found[: options.most]:
        print(f"{seconds:8.1f} s  {tier:8} {name}")
    for tier in sorted({row[1] for row in found}):
        rows = [row[0] for row in found if row[1] == tier]
        print(f"{sum(rows):8.1f} s  {tier:8} all {len(rows)} tests")
    return 0


if __name__ == "__main__":
    sys.exit(main())
