"""The options of `orion bench`; orion.bench makes the measurements."""

import json
import math
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from orion.cli import extras

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Measure the cost and the benefit of sharing a GPU.",
)


@app.command(name="colocation")
def colocation(
    scenario: Annotated[Path, typer.Argument(metavar="SCENARIO.yaml", help="What to measure; see bench/scenarios.")],
    output: Annotated[
        Path | None,
        typer.Option(help="The folder for results. An existing one is continued.", show_default="results/<name>"),
    ] = None,
    simulated: Annotated[
        bool, typer.Option("--simulated", help="Use simulated GPUs and workloads. The figures are not results.")
    ] = False,
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds, instead of the scenario's number.")] = None,
    requests: Annotated[
        int | None, typer.Option(min=1, help="hp requests per run, instead of the scenario's number.")
    ] = None,
    only: Annotated[
        str | None, typer.Option(metavar="GLOB", help="Only runs whose hp/be/system matches, as --dry-run shows them.")
    ] = None,
    gpus: Annotated[
        str | None,
        typer.Option(
            metavar="all|0,1|UUID,..", help="The GPUs; hp workloads are spread over them.", show_default="the first"
        ),
    ] = None,
    stop_after: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=1, help="Start no run that would end later than this.")
    ] = None,
    no_report: Annotated[
        bool, typer.Option("--no-report", help="Make no report; `orion bench report` makes it later.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the runs and their expected time.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Measure a latency-critical workload beside best-effort ones, under every system of a scenario.

    A repeated command continues where it stopped and repeats failed runs. At the end it makes the report.
    """  # fmt: skip
    from orion.bench.colocation import measure

    if not (dry_run or no_report):
        extras.require("numpy", "--no-report measures without it")
    limit = math.inf if stop_after is None else stop_after
    return measure.run(
        measure.Options(scenario, output, simulated, rounds, requests, only, gpus, limit, no_report, dry_run, as_json)
    )  # fmt: skip


@app.command(name="programs")
def programs(
    names: Annotated[list[str] | None, typer.Argument(metavar="[PROGRAM]...", help="Only these programs.")] = None,
    output: Annotated[
        Path, typer.Option(help="The folder for raw data and the report. An existing one is continued.")
    ] = Path("results/programs-by-role"),
    simulated: Annotated[
        bool, typer.Option("--simulated", help="Use simulated GPUs and stand-ins. The figures are not results.")
    ] = False,
    seconds: Annotated[float, typer.Option(min=0.2, help="About how long each run takes.")] = 4.0,
    gpus: Annotated[
        str | None, typer.Option(metavar="all|0,1|UUID,..", help="The GPUs.", show_default="the first")
    ] = None,
    stop_after: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=1, help="Start no run that would end later than this.")
    ] = None,
    only_list: Annotated[bool, typer.Option("--list", help="List the programs, and run none.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Run public programs (JAX, CuPy, Transformers, ..) alone, as hp and as be, and show what sharing costs them.

    A program whose package is not installed is skipped. A repeated command continues where it stopped.
    """
    from orion.bench import programs as public
    from orion.bench.colocation import measure

    if only_list:
        found = public.listed()
        if as_json:
            typer.echo(json.dumps({"programs": found}, indent=2))
            return 0
        for each in found:
            packages = ", ".join(f"{name} {version or '(missing)'}" for name, version in each["packages"].items())
            typer.secho(each["program"], bold=True, nl=False)
            typer.echo(f": {each['summary']}\n    {each['skipped'] or packages}")
        return 0
    extras.require("numpy", "the report uses it")
    scenario = public.scenario(public.cases(names or []), seconds)
    limit = math.inf if stop_after is None else stop_after
    return measure.run(
        measure.Options(scenario, output, simulated, gpus=gpus, stop_after=limit, as_json=as_json)
    )  # fmt: skip


@app.command(name="services")
def services(
    scenario: Annotated[Path, typer.Argument(metavar="SCENARIO.yaml", help="See bench/scenarios/services.yaml.")],
    output: Annotated[Path, typer.Option(help="The folder for results. An existing one is continued.")],
    only: Annotated[
        list[str] | None, typer.Option(metavar="PART", help="profile, pairs, climb or engine; repeatable.")
    ] = None,
    device: Annotated[
        str, typer.Option(metavar="cuda|cpu|fake", help="cpu: tiny models; fake: only waits. Neither gives results.")
    ] = "cuda",
    stop_after: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=1, help="Start no run that would end later than this.")
    ] = None,
) -> int:
    """Measure services that share a GPU, and a small LLM engine; a repeated command makes what is missing."""
    from orion.bench.services import controller

    limit = math.inf if stop_after is None else stop_after
    return controller.run_to_exit(scenario, output, only or [], device, limit)


@app.command(name="quotas")
def quotas(
    scenario: Annotated[Path, typer.Argument(metavar="SCENARIO.yaml", help="See bench/scenarios/quotas.yaml.")],
    output: Annotated[Path, typer.Option(help="The folder for results. An existing one is continued.")] = Path(
        "results/quotas"
    ),
    simulated: Annotated[
        bool, typer.Option("--simulated", help="Use simulated GPUs and stand-ins. The figures are not results.")
    ] = False,
    only: Annotated[str | None, typer.Option(metavar="SETTING", help="Only this setting.")] = None,
    stop_after: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=1, help="Start no run that would end later than this.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Measure whether be slots get the GPU time that their requests and limits say, in each second.

    A repeated command makes what is missing. At the end it prints a table of all settings.
    """
    extras.require("numpy", "the table is made with it")
    from orion.bench.commandline import interruptible, say
    from orion.bench.quotas import report as table
    from orion.bench.quotas import runs
    from orion.bench.quotas import scenario as scenarios

    limit = math.inf if stop_after is None else stop_after
    with interruptible():
        runs.run(scenarios.read(scenario), output, simulated, only, limit, lambda line: None if as_json else say(line))
    found = table.analysed(output)
    typer.echo(json.dumps({"settings": found}, indent=2) if as_json else table.markdown(found), nl=as_json)
    return 0


@app.command(name="memory")
def memory(
    scenario: Annotated[
        str, typer.Argument(metavar="FILE|SETTING", help="A file, or a setting of bench/scenarios/memory.yaml.")
    ],
    output: Annotated[Path, typer.Option(help="The folder for results. An existing one is continued.")] = Path(
        "results/memory"
    ),
    simulated: Annotated[
        bool, typer.Option("--simulated", help="Use a simulated GPU. The figures are no results about a GPU.")
    ] = False,
    only: Annotated[str | None, typer.Option(metavar="SETTING", help="Only this setting.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Measure whether slots keep their memory limits, and how be tenants leave a GPU's memory and come back.

    A repeated command makes what is missing. At the end it prints a table of all settings.
    """
    from orion.bench.commandline import interruptible, say
    from orion.bench.memory import report as table
    from orion.bench.memory import runs
    from orion.bench.memory import scenario as scenarios

    found, one = scenarios.chosen(scenario, only)
    with interruptible():
        runs.run(found, output, simulated, one, lambda line: None if as_json else say(line))
    settings = table.analysed(output)
    typer.echo(json.dumps({"settings": settings}, indent=2) if as_json else table.markdown(settings), nl=as_json)
    return 0


@app.command(name="report")
def report(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR|FILE.tgz", help="An output of `orion bench colocation` or `services`.")
    ],
    output: Annotated[
        Path | None, typer.Option(help="Where to unpack a FILE.tgz.", show_default="its name without .tgz")
    ] = None,
) -> int:
    """Make report.md and what belongs to it again, from an output of `orion bench colocation` or `services`."""
    from orion.bench.colocation import packing
    from orion.bench.colocation import report as reports

    if folder.is_file():
        packed, folder = folder, output or Path(folder.name.partition(".t")[0])
        packing.unpack(packed, folder)
    if (folder / "batch_times.json").is_file():  # only `orion bench services` writes one
        from orion.bench.services import report as services_report

        extras.require("numpy", "the simulator uses it")
        services_report.write(folder)
    else:
        reports.write(folder)
    typer.echo(f"Report: {folder / 'report.md'}")
    return 0


@app.command(name="pack")
def pack(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The output of `orion bench colocation`.")],
    file: Annotated[Path, typer.Argument(metavar="FILE.tgz", help="The file to write.")],
) -> int:
    """Put the raw data of a measurement into one file; `orion bench report FILE.tgz` makes the report from it."""
    from orion.bench.colocation import packing

    size = packing.pack(folder, file)
    typer.echo(f"{file}: {size / 2**20:.2f} MiB")
    return 0


@app.command(name="workloads")
def workloads(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of the list.")] = False,
) -> int:
    """List the workloads that a scenario may name, with their options."""
    from orion.bench.workloads import KINDS, options_of

    if as_json:
        found = {
            name: {"summary": kind.summary, "options": [asdict(row) for row in options_of(name)]}
            for name, kind in KINDS.items()
        }
        typer.echo(json.dumps({"workloads": found}, indent=2))
        return 0
    for name, kind in KINDS.items():
        typer.secho(f"{name}", bold=True, nl=False)
        typer.echo(f": {kind.summary}")
        for row in options_of(name):
            default = "" if row.default is None else f"; {row.default} by default"
            typer.echo(f"    {row.name} ({row.allowed}{default}): {row.meaning}")
    return 0


@app.command(name="threads")
def threads(
    output: Annotated[
        Path | None,
        typer.Option(help="A file for the raw data; `orion bench report DIR` reads DIR/threads_cost.json."),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds; each measures every setting.")] = 5,
    dtypes: Annotated[
        str, typer.Option(help="Data types of the matrix products, by torch's names.")
    ] = "bfloat16,float32",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of the table.")] = False,
) -> None:
    """Measure how much longer launches and matrix products take in clients that are threads than on plain streams."""
    from orion import hook
    from orion.cli.launching import preloading_environment

    extras.require("torch", "the measured threads use it")
    environment = preloading_environment(os.environ, hook.library(), None)
    command = [sys.executable, "-Pm", "orion.bench.threads_cost", "--rounds", str(rounds), "--dtypes", dtypes]
    command += ["--output", str(output)] * (output is not None) + ["--json"] * as_json
    sys.stdout.flush()
    os.execve(sys.executable, command, environment)
