"""Runs experiments, and writes their raw data and tables: `python -m measurements.cluster.claims --raw FOLDER`.

It needs a checkout and root. Each experiment starts a cluster of its own. Run them on an idle machine: all of them
share its cores with the cluster.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from measurements.cluster.claims import failures, floors, held, neighbours, prepare, slices, starts
from measurements.cluster.claims.figures import table
from measurements.cluster.webhook_load import conditions
from orion.bench import raw_data
from orion.bench.commandline import OneSentenceParser, say

EXPERIMENTS: dict[str, Any] = {
    "prepare": prepare,
    "slices": slices,
    "held": held,
    "starts": starts,
    "floors": floors,
    "failures": failures,
    "neighbours": neighbours,
}


def main() -> int:
    """Measure, write the raw data, print the tables."""
    parser = OneSentenceParser(prog="python -m measurements.cluster.claims", description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(EXPERIMENTS)} (default: all)")
    parser.add_argument("--raw", type=Path, required=True, help="folder for the raw data and for tables.md")
    parser.add_argument("--smoke", action="store_true", help="few and short turns, to see whether it works")
    parser.add_argument("--tables-only", action="store_true", help="print tables of the raw data that is there")
    options: argparse.Namespace = parser.parse_args()
    names = options.names or [*EXPERIMENTS]
    if unknown := set(names) - EXPERIMENTS.keys():
        parser.error(f"no experiment is called {min(unknown)}; there are {', '.join(EXPERIMENTS)}")
    options.raw.mkdir(parents=True, exist_ok=True)
    for name in names if not options.tables_only else ():
        _measure(name, options.raw, smoke=options.smoke)
    tables = [_table(name, options.raw) for name in EXPERIMENTS if _file(name, options.raw).exists()]
    (options.raw / "tables.md").write_text("\n".join(tables))
    print("\n".join(tables))
    return 0


def _measure(name: str, folder: Path, *, smoke: bool) -> None:
    experiment = EXPERIMENTS[name]
    say(f"{name} begins")
    raw = raw_data.header("measurements.cluster.claims") | conditions()
    raw |= {"experiment": f"claims_{name}", "sizes": experiment.SMOKE if smoke else experiment.SIZES}
    raw["command"] = raw["command"].replace(str(folder), "FOLDER")
    raw |= {"load_before": os.getloadavg()[0]} | experiment.measure(raw["sizes"]) | {"load_after": os.getloadavg()[0]}
    raw_data.write(_file(name, folder), raw)


def _file(name: str, folder: Path) -> Path:
    return folder / f"claims_{name}.json.gz"


def _table(name: str, folder: Path) -> str:
    raw = raw_data.read(_file(name, folder))
    loads = f"load {raw['load_before']:.1f} before, {raw['load_after']:.1f} after"
    return f"## {name} ({raw['began']}, {loads})\n\n{table(EXPERIMENTS[name].figures(raw))}\n"


if __name__ == "__main__":
    sys.exit(main())
