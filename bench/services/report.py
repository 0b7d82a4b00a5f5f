"""The page of a measurement of services: predictions beside what was measured, and which way is best."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from orion.bench.services import choosing, comparing, predicting
from orion.bench.services.comparing import P50_WITHIN, P99_WITHIN, Compared
from orion.bench.services.measured import Measured
from orion.simulation import whole_files


def write(folder: Path, simulator: predicting.Simulate = predicting.simulate) -> Path:
    """Write `report.md` and `compared.json` into the folder; return the path of the report."""
    measured = Measured(folder)
    compared = comparing.compare(measured, simulator)
    lines = [f"# Services on one GPU: {measured.wanted.name}", "", *_summary(compared), "", *_table(compared)]
    lines += ["", "## The way that `planner: orion` chooses", "", *_choices(measured)]
    lines += ["", "## The highest load with at most 1 % misses", "", *_highest(measured)]
    whole_files.write(folder / "compared.json", [json.dumps([asdict(each) for each in compared])])
    whole_files.write(folder / "report.md", [line + "\n" for line in lines])
    return folder / "report.md"


def _summary(compared: Sequence[Compared]) -> Iterator[str]:
    within = sum(each.is_within for each in compared)
    yield f"{within} of {len(compared)} figures have p50 within {P50_WITHIN:.0%} and p99 within {P99_WITHIN:.0%}."
    yield from ("", "| way | figures | within | largest error of p50 | of p99 |", "|---|---|---|---|---|")
    for kind in ("slices", "part", "edf", "engine"):
        of_kind = [each for each in compared if each.way.startswith(kind)]
        if of_kind:
            p50 = max((each.predicted_p50 / each.measured_p50 - 1 for each in of_kind), key=abs)
            p99 = max((each.predicted_p99 / each.measured_p99 - 1 for each in of_kind), key=abs)
            count = sum(each.is_within for each in of_kind)
            yield f"| {kind} | {len(of_kind)} | {count} | {p50:+.1%} | {p99:+.1%} |"


def _table(compared: Sequence[Compared]) -> Iterator[str]:
    yield "| run | service | figure | p50 measured | predicted | p99 measured | predicted | within |"
    yield "|---|---|---|---|---|---|---|---|"
    for each in compared:
        yield (
            f"| {each.run} | {each.service} | {each.figure} | {each.measured_p50:.2f} | "
            f"{each.predicted_p50:.2f} ({each.predicted_p50 / each.measured_p50 - 1:+.1%}) | {each.measured_p99:.2f} | "
            f"{each.predicted_p99:.2f} ({each.predicted_p99 / each.measured_p99 - 1:+.1%}) | "
            f"{'yes' if each.is_within else 'no'} |"
        )


def _choices(measured: Measured) -> Iterator[str]:
    found, ways = choosing.choices(measured), measured.wanted.pairs.all_ways
    within = sum(each.is_best for each in found)
    yield f"{within} of {len(found)} choices are the measured best, or within {choosing.BEST_WITHIN:.0%} of it."
    yield "The figures are the worst service's measured p99 over its objective."
    yield from ("", f"| pair | load | {' | '.join(ways)} | chosen | best or near |", "|---" * (len(ways) + 4) + "|")
    for each in found:
        row = " | ".join(f"{each.scores[way]:.3f}" if way in each.scores else "" for way in ways)
        yield f"| {' + '.join(each.pair)} | {each.load:g} | {row} | {each.way} | {'yes' if each.is_best else 'no'} |"


def _highest(measured: Measured) -> Iterator[str]:
    found = choosing.highest(measured)
    ways = list(next(iter(found.values()), {}))
    yield from (f"| pair | {' | '.join(ways)} |", "|---" * (len(ways) + 1) + "|")
    for pair, loads in found.items():
        yield f"| {' + '.join(pair)} | {' | '.join(f'{loads[way]:g}' for way in ways)} |"
