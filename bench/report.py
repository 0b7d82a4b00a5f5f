"""Markdown from raw data: `python -m orion.bench.report RAW...`, for the tables of docs/results.

Takes the files that colocation, solo_overhead and hook_cost write (.json or .json.gz) and prints one section a file.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from orion.bench import raw_data
from orion.bench.commandline import OneSentenceParser
from orion.bench.estimates import (
    Estimate,
    binned_rates,
    latencies_ms,
    paired_percentile_ratio,
    paired_rate_ratio,
    percentile,
)

NAMES = {
    "resnet50-training": "ResNet-50 training, batch 256",
    "bert-training": "BERT-like training, batch 32 x 512",
    "gemm": "bf16 GEMM 8192 loop",
    "resnet50-inference": "ResNet-50 inference, CUDA graph, batch 64",
    "resnet50-eager": "ResNet-50 inference, eager, batch 4",
}
BIN_SECONDS = 0.5

Run = dict[str, Any]


def markdown(raw: dict[str, Any]) -> str:
    """Return one section for one file's raw data."""
    makers: dict[str, Callable[[dict[str, Any]], list[str]]] = {
        "colocation": _colocation, "solo_overhead": _solo_overhead, "hook_cost": _hook_cost,
    }  # fmt: skip
    head = [f"Machine: {raw['machine']}", "", f"Command: `{raw['command']}`", ""]
    return "\n".join([*head, *makers[raw["experiment"]](raw), ""])


def hp_latencies(run: Run) -> list[float]:
    """Latencies in milliseconds of the requests that count."""
    begin = run["window"][0]
    pairs = [(due, end) for due, end in zip(run["arrivals"], run["ends"], strict=True) if due >= begin]
    return latencies_ms([due for due, _ in pairs], [end for _, end in pairs])


def be_rates(run: Run) -> list[float]:
    """Amount a second in each half second of the window."""
    begin, end = run["window"]
    bins = max(1, round((end - begin) / BIN_SECONDS))
    return [rate * run["be_amount"] for rate in binned_rates(run["be_ends"], begin, end, bins)]


def compare(runs: Sequence[Run], be: str, system: str) -> dict[str, Estimate]:
    """Compare a system with its rounds' own references.

    Returns:
        "p50", "p95", "p99": hp latency over hp latency alone; "be": be throughput over be throughput alone.
    """
    found = {(run["round"], run["system"]): run for run in runs if run["be"] == be}
    rounds = [
        number for number, name in found if name == system and {(number, "alone"), (number, "be-alone")} <= set(found)
    ]
    latencies = [(hp_latencies(found[number, system]), hp_latencies(found[number, "alone"])) for number in rounds]
    rates = [(be_rates(found[number, system]), be_rates(found[number, "be-alone"])) for number in rounds]
    estimates = {f"p{rank}": paired_percentile_ratio(latencies, rank) for rank in (50, 95, 99)}
    return {**estimates, "be": paired_rate_ratio(rates)}


def _colocation(raw: dict[str, Any]) -> list[str]:
    lines = [
        "| be | system | hp p50 / alone | hp p95 / alone | hp p99 / alone | be / alone | hp p99, ms | be, per second |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for be in raw["be"]:
        for system in ("orion", "timeslice"):
            runs = [run for run in raw["runs"] if run["be"] == be and run["system"] == system]
            if not runs:
                continue
            ratios = compare(raw["runs"], be, system)
            p99 = ", ".join(f"{percentile(hp_latencies(run), 99):.1f}" for run in runs)
            rate = ", ".join(f"{sum(be_rates(run)) / len(be_rates(run)):.0f}" for run in runs)
            cells = [NAMES[be], system, *(_cell(ratios[name]) for name in ("p50", "p95", "p99", "be")), p99, rate]
            lines.append(f"| {' | '.join(cells)} |")
    requests = min((len(hp_latencies(run)) for run in raw["runs"] if "arrivals" in run), default=0)
    lines += ["", f"hp alone: {_alone(raw)}; {requests} requests a side and round at {raw['rate']:g}/s."]
    lines += [f"Failed: {error['be']}." for error in raw["errors"]]
    return lines


def _alone(raw: dict[str, Any]) -> str:
    runs = [hp_latencies(run) for run in raw["runs"] if run["system"] == "alone"]
    if not runs:
        return "not measured"
    spread = {rank: [percentile(latencies, rank) for latencies in runs] for rank in (50, 99)}
    return ", ".join(f"p{rank} {min(values):.2f} to {max(values):.2f} ms" for rank, values in spread.items())


def _solo_overhead(raw: dict[str, Any]) -> list[str]:
    lines = ["| load | hook off | as hp, on / off | as be, on / off |", "|---|---|---|---|"]
    loads = list(dict.fromkeys(row["load"] for row in raw["rows"]))
    for load in loads:
        rows = [row for row in raw["rows"] if row["load"] == load]
        rates = {
            (role, on): [row["per_second"] for row in rows if row["role"] == role and (row["system"] != "off") == on]
            for role in ("hp", "be")
            for on in (True, False)
        }
        ratios = [
            paired_rate_ratio([([on], [off]) for on, off in zip(rates[role, True], rates[role, False], strict=True)])
            for role in ("hp", "be")
        ]
        unhooked = rates["hp", False] + rates["be", False]
        off = f"{sum(unhooked) / len(unhooked):.1f} {rows[0]['unit']}/s"
        lines.append(f"| {NAMES[load]} | {off} | {_cell(ratios[0], 4)} | {_cell(ratios[1], 4)} |")
    return lines


def _hook_cost(raw: dict[str, Any]) -> list[str]:
    lines = [f"| call | client | without, {raw['unit']} | the hook costs | quartiles |", "|---|---|---|---|---|"]
    for row in raw["calls"]:
        low, high = row["spread"]
        lines.append(f"| {row['call']} | {row['role']} | {row['off']} | {row['cost']} | {low} to {high} |")
    return lines


def _cell(estimate: Estimate, digits: int = 3) -> str:
    return f"{estimate.value:.{digits}f} ({estimate.low:.{digits}f} to {estimate.high:.{digits}f})"


def main(arguments: list[str] | None = None) -> int:
    """Print the sections."""
    parser = OneSentenceParser(prog="orion.bench.report", description="Markdown tables from raw data.")
    parser.add_argument("raw", nargs="+", type=Path, help="files that the benchmarks wrote")
    for path in parser.parse_args(arguments).raw:
        try:
            print(markdown(raw_data.read(path)))
        except (OSError, ValueError, KeyError, TypeError) as error:
            print(f"{parser.prog}: {path} holds no raw data of a benchmark ({error})", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
