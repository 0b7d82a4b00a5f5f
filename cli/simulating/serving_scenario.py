"""`orion simulate serving SCENARIO.yaml`: one scenario; orion.simulation.serving does the work."""

import json
from pathlib import Path
from typing import Any

import typer

from orion.cli import extras
from orion.errors import Invalid

TABLE_WIDTH = 110  # a narrower terminal wraps lines, so that no figure is cut


def run(scenario: Path, planner: str, running: Path | None, log: Path | None, *, as_json: bool) -> None:
    """Simulate a scenario; print its report.

    Args:
        scenario: the scenario's file.
        planner: who decides if the scenario has no plan.
        running: the file of a plan that runs now; None: there is none.
        log: the file for one line for each request; None: no file.
        as_json: whether to print one JSON object.

    Raises:
        OrionError: with a sentence.
    """
    extras.require("numpy", "it simulates requests")
    from orion.simulation.serving import planned, reading, results
    from orion.simulation.serving import running as reading_running
    from orion.simulation.serving.simulating import simulate
    from orion.simulation.whole_files import write

    planned.check_name(planner)
    if running is not None and planner != "orion":
        raise Invalid(f"--from is for the planner orion, and {planner} knows no running plan: leave one of them out")
    setting = reading.read(scenario)
    if running is not None and setting.plan is not None:
        raise Invalid(f"--from needs a scenario without a plan, and {scenario} has one: take it out")
    if log is not None and log.resolve() in [path.resolve() for path in (scenario, *setting.inputs)]:
        raise Invalid(f"--log cannot be {str(log)!r}: the scenario is read from that file")
    before = None if running is None else reading_running.read(running, setting)
    found = planned.Planned(setting.plan) if setting.plan is not None else planned.plan(setting, planner, before)
    simulated = simulate(setting, found.plan)
    if log is not None:
        write(log, results.log_lines(simulated))
    report = results.report(simulated)
    report["beneath"] = planned.plain_beneath(setting, found)
    report["from"] = None
    if before is not None:
        moves = reading_running.moved(found.plan, before)
        report["from"] = {
            "file": str(running),
            "moved": [{"service": service, "gpu": setting.gpus[gpu].name} for service, gpu in moves],
        }
    if as_json:
        typer.echo(json.dumps(report))
        return
    _print(scenario, report, log, is_planned=setting.plan is None)


def _print(scenario: Path, report: dict[str, Any], log: Path | None, *, is_planned: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, soft_wrap=True)
    console.width = max(console.width, TABLE_WIDTH)
    busy = ", ".join(f"{each['gpu']} {each['busy']:.1%}" for each in report["gpus"])
    console.print(f"{scenario}: {len(report['services'])} services; GPU time in use: {busy}")
    table = Table(box=None, pad_edge=False)
    table.add_column("service", no_wrap=True)
    titles = ("requests", "missed", "dropped", "missed (%)", "mean (ms)", "p50", "p99", "max")
    has_tokens = any(each["ttft_ms"]["mean"] is not None for each in report["services"])
    for title in (*titles, *(("TTFT p99", "TPOT p99") if has_tokens else ())):
        table.add_column(title, justify="right")
    for each in report["services"]:
        latency = each["latency_ms"]
        figures = [latency["mean"], latency["p50"], latency["p99"], latency["max"]]
        if has_tokens:
            figures += [each["ttft_ms"]["p99"], each["tpot_ms"]["p99"]]
        ratio = "" if each["miss_ratio"] is None else f"{each['miss_ratio']:.2%}".removesuffix("%")
        table.add_row(
            each["name"], str(each["requests"]), str(each["missed"]), str(each["dropped"]), ratio,
            *("" if figure is None else f"{figure:.2f}" for figure in figures),
        )  # fmt: skip
    console.print(table)
    for part in report["plan"]:
        if is_planned:
            services = ", ".join(f"{each['name']} (batch {each['batch']})" for each in part["services"])
            console.print(f"{part['gpu']}: {part['share']} %, {part['way']}, {part['order']}: {services}")
        if part["needs"]:
            console.print(f"[yellow]{part['gpu']} needs {part['needs']}[/yellow]")
    for job in report["beneath"]:
        place = "beneath no GPU's services: their GPUs have no time or memory left for it"
        if job["gpu"] is not None:
            place = f"beneath the services of {job['gpu']}, at {job['speed']:.0%} of its speed alone"
        console.print(f"{job['name']}: {place}", markup=False)
    if report["from"]:
        moves = [f"{each['service']} on {each['gpu']}" for each in report["from"]["moved"]]
        console.print(f"from {report['from']['file']}: {'starts ' + ', '.join(moves) if moves else 'no service moves'}")
    if report["reason"]:
        console.print(report["reason"])
    for note in report["notes"]:
        console.print(f"[yellow]{note}[/yellow]")
    if log is not None:
        console.print(f"wrote {log}")
