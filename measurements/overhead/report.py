"""Makes Markdown tables of raw data for docs/results: `python -m measurements.overhead.report RAW...`.

It reads the files that solo_overhead, eager_overhead and hook_cost write (.json or .json.gz) and prints one section for
each file. Reports of colocations come from `orion bench report`.
"""

import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measurements.overhead.eager_overhead import REFERENCES, SYSTEMS
from orion.bench import raw_data
from orion.bench.commandline import OneSentenceParser
from orion.bench.estimates import Estimate, paired_rate_ratio
from orion.bench.paired_turns import over

NAMES = {
    "resnet50-training": "ResNet-50 training, batch 256",
    "bert-training": "BERT-like training, batch 32 x 512",
    "gemm": "bf16 GEMM 8192 loop",
    "resnet50-inference": "ResNet-50 inference, CUDA graph, batch 64",
    "resnet50-eager": "ResNet-50 inference, eager, batch 4",
}


def markdown(raw: dict[str, Any]) -> str:
    """Return one section for one file's raw data."""
    makers: dict[str, Callable[[dict[str, Any]], list[str]]] = {
        "solo_overhead": _solo_overhead,
        "eager_overhead": _eager_overhead,
        "hook_cost": _hook_cost,
    }
    head = [f"Machine: {raw['machine']}", "", f"Command: `{raw['command']}`", ""]
    return "\n".join([*head, *makers[raw["experiment"]](raw), ""])


def _solo_overhead(raw: dict[str, Any]) -> list[str]:
    lines = [
        "| load | hook off | as hp, on / off | as be, on / off | as be, on / on with policy none |",
        "|---|---|---|---|---|",
    ]
    for load in dict.fromkeys(row["load"] for row in raw["rows"]):
        rows = [row for row in raw["rows"] if row["load"] == load]
        rates: dict[tuple[str, str], list[float]] = {}
        for row in rows:
            rates.setdefault((row["role"], row["system"]), []).append(row["per_second"])
        compared = ("hp", "off"), ("be", "off"), ("be", "none")  # hp is not measured with --idle-hp, none only then
        ratios = [
            _cell(
                paired_rate_ratio(
                    [([on], [off]) for on, off in zip(rates[role, role], rates[role, other], strict=True)]
                ),
                4,
            )
            if (role, other) in rates
            else ""
            for role, other in compared
        ]
        unhooked = [row["per_second"] for row in rows if row["system"] == "off"]
        off = f"{sum(unhooked) / len(unhooked):.1f} {rows[0]['unit']}/s"
        lines.append(f"| {' | '.join([NAMES.get(load, load), off, *ratios])} |")
    return lines


def _eager_overhead(raw: dict[str, Any]) -> list[str]:
    calls, number = raw["launches_of_a_request"], 1 + max(row["turn"] for row in raw["rows"])
    turns: dict[str, list[dict[str, list[float]]]] = {
        name: [{} for _ in range(number)] for name in ("p50", "cpu", "hook", "instructions")
    }
    for row in raw["rows"]:
        launches = row["requests"] * calls
        figures = {
            "p50": statistics.median(row["latencies_ms"]),
            "cpu": 1e6 * row["cpu_s"] / launches,
            "hook": 1e6 * row["hook_threads_cpu_s"] / launches,
        }
        if row["instructions"] is not None:
            figures["instructions"] = row["instructions"] / launches
        for name, value in figures.items():
            turns[name][row["turn"]][row["system"]] = [value]

    def median(system: str, name: str) -> str:
        return f"{statistics.median(turn[system][0] for turn in turns[name]):.3f}"

    def ratio(system: str, name: str) -> str:
        if system not in REFERENCES:
            return ""
        if not all(system in turn for turn in turns[name]):
            return "not counted"
        compared = over(turns[name], system, REFERENCES[system], lambda on, off: on / off)
        return f"{compared.median:.3f} ({compared.low:.3f} to {compared.high:.3f})"

    of_hp, of_be = (", ".join(map(str, chosen)) for chosen in raw["cpus"])
    lines = [
        f"{number} turns. One request: {calls:.0f} launches. CPUs of hp: {of_hp}; of be: {of_be}.",
        "",
        "| system | p50, ms | / off | CPU time of a launch, us | / off | in the hook's threads | instructions / off |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in [each.name for each in SYSTEMS]:
        ratios = {each: ratio(name, each) for each in ("p50", "cpu", "instructions")}
        left = f"| {name} | {median(name, 'p50')} | {ratios['p50']} | {median(name, 'cpu')} | {ratios['cpu']} "
        lines.append(f"{left}| {median(name, 'hook')} | {ratios['instructions']} |")
    return lines


def _hook_cost(raw: dict[str, Any]) -> list[str]:
    lines = [f"| call | client | without, {raw['unit']} | the hook costs | quartiles |", "|---|---|---|---|---|"]
    for row in raw["calls"]:
        low, high = row["spread"]
        lines.append(f"| {row['call']} | {row['role']} | {row['off']} | {row['cost']} | {low} to {high} |")
    return lines


def _cell(estimate: Estimate, digits: int) -> str:
    return f"{estimate.value:.{digits}f} ({estimate.low:.{digits}f} to {estimate.high:.{digits}f})"


def main(arguments: list[str] | None = None) -> int:
    """Print the sections."""
    parser = OneSentenceParser(prog="measurements.overhead.report", description="Markdown tables from raw data.")
    parser.add_argument("raw", nargs="+", type=Path, help="files that the benchmarks wrote")
    for path in parser.parse_args(arguments).raw:
        try:
            print(markdown(raw_data.read(path)))
        except (OSError, ValueError, KeyError, TypeError) as error:
            print(f"{parser.prog}: {path} is not the raw data of a benchmark ({error})", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
