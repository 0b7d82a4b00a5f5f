"""Writes a summary as Markdown: the machine, the failures, the targets, and the figures of each pair."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from orion.bench.colocation.summary import (
    CeilingCurve,
    Client,
    Figure,
    PairFigures,
    ProgramFigures,
    Summary,
    SystemFigures,
)

HOW_TO_READ = """\
Each figure is a ratio to a run of the same round: hp's latencies to those of hp alone with the same arrivals, be's
throughput to that of be alone. The figure is the median over rounds. The brackets have the 95 % bootstrap interval
over rounds and, within rounds, over blocks of consecutive requests. Latency counts from the scheduled arrival. Columns:

* **be / bound**: be / (0.97 x (1 - hp share - busy periods per second x 0.15 ms)); the divisor is 97 % of the time that
  hp leaves;
* **hp + be**: the sum of both throughputs, each divided by its capacity alone;
* **hp GPU time**: the time of the same requests from start to end, without queueing;
* **unfairness**: the largest deviation of a be client from its fair share of be's GPU time. A client's GPU time is its
  throughput divided by that of the same work alone. A fair share is in proportion to the request, or equal without
  requests;
* **of the ceiling**: hp + be divided by the value of a queueing model at the same hp p99. The model uses closed loops
  of the same round;
* **hiccups**: the number of requests whose service took more than 2.5 x the median of their run + 8 ms, and the longest
  of them. The service starts when hp could have begun the request. All figures include hiccups, so a few may decide a
  p99. A run is disturbed if a process on another GPU of the host started or ended during the run.
"""

Column = tuple[str, Callable[[SystemFigures], Figure | None]]


def markdown(summary: Summary) -> str:
    """Return report.md."""
    lines = [f"# {summary.name}", ""]
    if summary.simulated:
        lines += ["**Made on a simulated GPU: these figures show that the measurement runs, nothing else.**", ""]
    lines += ["## Machine", "", *_machine(summary.machine), ""]
    if summary.failures:
        lines += ["## Failures", "", *(f"* {sentence}" for sentence in summary.failures), ""]
    lines += ["## Targets", "", *_targets(summary), ""]
    if summary.programs:
        lines += ["## Programs", "", *_markdown_rows(_programs(summary.programs)), ""]
    lines += ["## Results", "", HOW_TO_READ]
    for pair in summary.pairs:
        lines += [*_pair(pair), *(f"![{pair.name}]({plot})\n" for plot in pair.plots)]
    if not summary.pairs:
        lines += ["No round has both a run of hp alone and a run of hp beside be.", ""]
    if summary.without_plots:
        lines += [summary.without_plots, ""]
    return "\n".join(lines)


def _machine(machine: dict[str, Any]) -> list[str]:
    if not machine:
        return ["Unknown: machine.json is missing."]
    return [f"* {name}: {_plain(value)}" for name, value in machine.items() if value not in (None, [], {})]


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return "; ".join(_plain(one) for one in value)
    if isinstance(value, dict):
        return ", ".join(f"{name} {_plain(one)}" for name, one in value.items() if one not in (None, ""))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _targets(summary: Summary) -> list[str]:
    judged = [verdict for verdict in summary.verdicts if verdict.status != "not measured"]
    lines = []
    if judged:
        lines += ["| target | asked | | measured |", "|---|---|---|---|"]
        lines += [f"| {one.target} | {one.asked} | **{one.status}** | {one.figures} |" for one in judged]
    left = [verdict.target for verdict in summary.verdicts if verdict.status == "not measured"]
    if left:
        lines += [*([""] if lines else []), f"Not measured here: {'; '.join(left)}."]
    return lines


def programs_text(summary: Summary) -> list[str]:
    """Return the figures of public programs as lines of aligned text; nothing if there are none."""
    if not summary.programs:
        return []
    rows = _programs(summary.programs)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _programs(programs: Sequence[ProgramFigures]) -> list[list[str]]:
    """Return the rows of a table, its head first; columns that all rows leave empty are left out."""
    head = ["program", "packages", "role", "beside", "system", "step alone, ms", "hp p50 / alone", "hp p99 / alone",
            "be / alone", "be / bound"]  # fmt: skip
    rows = [
        [each.program, _plain(each.versions), each.role, each.beside, each.system,
         "" if each.step_ms is None else _digits(each.step_ms),
         _cell(each.hp_p50), _cell(each.hp_p99), _cell(each.be), _cell(each.be_over_bound)]
        for each in programs
    ]  # fmt: skip
    used = [number for number in range(len(head)) if any(row[number] for row in rows)]
    return [[row[number] for number in used] for row in (head, *rows)]


def _markdown_rows(rows: list[list[str]]) -> list[str]:
    head, *rest = (f"| {' | '.join(row)} |" for row in rows)
    return [head, "|---" * len(rows[0]) + "|", *rest]


def _pair(pair: PairFigures) -> list[str]:
    lines = [f"### {pair.name}", "", *_sides(pair), ""]
    columns = [column for column in _columns(pair) if any(column[1](system) for system in pair.systems)]
    has_hiccups = any(system.hiccups.words for system in pair.systems)
    heads = ["system", *(title for title, _ in columns), "hp p99, ms", "rounds x requests", *["hiccups"] * has_hiccups]
    lines += [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for system in pair.systems:
        cells = [system.system, *(_cell(figure(system)) for _, figure in columns)]
        p99 = ", ".join(_digits(value) for value in system.latency_ms["p99"])
        cells += [p99, f"{len(system.rounds)} x {system.requests}", *[system.hiccups.words] * has_hiccups]
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, "", *_shares(pair)]


def _shares(pair: PairFigures) -> list[str]:
    """Return a table with the shares of several be clients."""
    several = [system for system in pair.systems if system.be_clients]
    if not several:
        return []
    lines = [
        "| system | be client | request | GPU time | part of be's GPU time | fair part | deviation |",
        "|---" * 7 + "|",
    ]
    for system in several:
        for client in system.be_clients:
            off = [100 * (part / client.fair - 1) for part in client.part]
            cells = [
                system.system,
                client.id,
                f"{client.request:g}" if client.request else "none",
                _range(client.gpu_time),
                _range(client.part),
            ]
            lines.append(f"| {' | '.join(cells)} | {client.fair:.3g} | {min(off):+.1f} to {max(off):+.1f} % |")
    return [*lines, ""]


def _columns(pair: PairFigures) -> list[Column]:
    what = "hp" if any(system.iteration is None for system in pair.systems) else "iteration"
    ranks: list[Column] = [(f"{what} {rank} / alone", _rank(rank)) for rank in ("p50", "p95", "p99")]
    return [
        ("iteration / alone", lambda system: system.iteration),
        *ranks,
        ("be / alone", lambda system: system.be),
        ("be / bound", lambda system: system.be_over_bound),
        ("hp + be", lambda system: system.total),
        ("hp GPU time", lambda system: system.busy_time),
        ("unfairness", lambda system: system.unfairness),
        ("of the ceiling", lambda system: system.of_ceiling),
    ]


def _rank(rank: str) -> Callable[[SystemFigures], Figure | None]:
    return lambda system: system.latency[rank]


def _sides(pair: PairFigures) -> list[str]:
    rate = f", {pair.rate:.4g} requests/s" if pair.rate else ""
    load = f" ({100 * pair.load:.3g} % load wanted)" if pair.load else ""
    clients = list(dict.fromkeys(_client(client) for client in pair.be))
    lines = [
        f"* hp: {_client(pair.hp)}{rate}{load}",
        f"* be: {f'{len(pair.be)} x ' if len(pair.be) > 1 else ''}{'; '.join(clients)}",
        f"* hp alone: {', '.join(f'{rank} {_range(values)} ms' for rank, values in pair.alone_ms.items())}"
        + (f"; {_range(pair.hp_service_ms)} ms a request in a closed loop" if pair.hp_service_ms else "")
        + (f"; hiccups: {pair.alone_hiccups.words}" if pair.alone_hiccups.words else ""),
    ]
    if pair.be_bound:
        lines.append(
            f"* hp share {_range(pair.hp_share)}, {_range(pair.busy_periods_per_second)} busy periods/s, "
            f"so be's bound is {_range(pair.be_bound)}"
        )
    return [*lines, *(_closed_loops(curve) for curve in pair.ceilings)]


def _closed_loops(curve: CeilingCurve) -> str:
    """Return a line with the measured speeds behind the ceiling of a mode."""
    clauses = []
    for system in dict.fromkeys(loop.system for loop in curve.closed_loops):
        loops = [loop for loop in curve.closed_loops if loop.system == system]
        hp, be = _range([loop.overlapped for loop in loops]), _range([loop.be_overlapped for loop in loops])
        clauses.append(f"under {system} hp keeps {hp} and be gets {be}")
    alone = _range([loop.alone for loop in curve.closed_loops])
    return f"* closed loops in {curve.mode}: hp keeps {alone} without be; {'; '.join(clauses)}"


def _client(client: Client) -> str:
    options = ", ".join(f"{name} {_plain(value)}" for name, value in client.facts.items() if name != "torch")
    return f"{client.workload}{f' ({options})' if options else ''}"


def _range(values: Sequence[float]) -> str:
    low, high = _digits(min(values)), _digits(max(values))
    return low if low == high else f"{low} to {high}"


def _cell(figure: Figure | None) -> str:
    return "" if figure is None else f"{figure.median:.3f} ({figure.low:.3f} to {figure.high:.3f})"


def _digits(value: float) -> str:
    """Format a number with three significant digits, without an exponent."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"
