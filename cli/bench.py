"""`orion bench`: the options; the measurements themselves live in orion.bench."""

import importlib.util
import json
import math
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from orion.cli.errors import Refused

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Measure what sharing a GPU costs and gives.",
)


@app.command(name="colocation")
def colocation(
    scenario: Annotated[Path, typer.Argument(metavar="SCENARIO.yaml", help="What to measure; see bench/scenarios.")],
    output: Annotated[
        Path | None,
        typer.Option(help="Folder of the results; one that exists is gone on with.", show_default="results/<name>"),
    ] = None,
    simulated: Annotated[bool, typer.Option("--simulated", help="Simulated GPUs and workloads: no results.")] = False,
    rounds: Annotated[int | None, typer.Option(min=1, help="In place of the scenario's.")] = None,
    requests: Annotated[int | None, typer.Option(min=1, help="Of hp, a run; in place of the scenario's.")] = None,
    only: Annotated[str | None, typer.Option(metavar="GLOB", help="Of hp/be/system, as --dry-run shows them.")] = None,
    gpus: Annotated[
        str | None,
        typer.Option(metavar="all|0,1|UUID,..", help="Each takes hp workloads in turn.", show_default="the first"),
    ] = None,
    stop_after: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=1, help="Begin no run that would not end by then.")
    ] = None,
    no_report: Annotated[bool, typer.Option("--no-report", help="Leave it to `orion bench report`.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the runs and the time they take.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """A latency-critical workload beside best-effort ones, under every system of a scenario.

    Goes on where it stopped, and tries failed runs again. The report is made at the end.
    """  # fmt: skip
    from orion.bench.colocation import measure

    limit = math.inf if stop_after is None else stop_after
    return measure.run(
        measure.Options(scenario, output, simulated, rounds, requests, only, gpus, limit, no_report, dry_run, as_json)
    )  # fmt: skip


@app.command(name="report")
def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR|FILE.tgz", help="An output of `orion bench colocation`.")],
    output: Annotated[
        Path | None, typer.Option(help="Where a packed one is unpacked.", show_default="its name without .tgz")
    ] = None,
) -> int:
    """Make report.md, summary.json and the plots of a measurement again."""
    try:
        from orion.bench.colocation import packing
        from orion.bench.colocation import report as reports

        if folder.is_file():
            packed, folder = folder, output or Path(folder.name.partition(".t")[0])
            packing.unpack(packed, folder)
        reports.write(folder)
    except ImportError as error:
        raise Refused(f"{error.name} is not installed, and the report needs it") from error
    except (ValueError, OSError) as error:
        raise Refused(str(error)) from error
    typer.echo(f"Report: {folder / 'report.md'}")
    return 0


@app.command(name="pack")
def pack(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The output of `orion bench colocation`.")],
    file: Annotated[Path, typer.Argument(metavar="FILE.tgz", help="Where to.")],
) -> int:
    """Put the raw data of a measurement into one file; `orion bench report FILE.tgz` makes the report from it."""
    from orion.bench.colocation import packing

    try:
        size = packing.pack(folder, file)
    except (ValueError, OSError) as error:
        raise Refused(str(error)) from error
    typer.echo(f"{file}: {size / 2**20:.2f} MiB")
    return 0


@app.command(name="workloads")
def workloads(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of the list.")] = False,
) -> int:
    """The workloads that a scenario may name, with their options."""
    from orion.bench.workloads import KINDS, options_of

    if as_json:
        told = {
            name: {"summary": kind.summary, "options": [asdict(row) for row in options_of(name)]}
            for name, kind in KINDS.items()
        }
        typer.echo(json.dumps({"workloads": told}, indent=2))
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
        typer.Option(help="A file for the raw data; a report judges DIR/threads_cost.json of its folder."),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Each measures every setting.")] = 5,
    dtypes: Annotated[str, typer.Option(help="Of the matrix products, torch's names.")] = "bfloat16,float32",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of the table.")] = False,
) -> None:
    """What clients as threads of one process cost over plain streams: a launch, and two clients' matrix products."""
    from orion import hook
    from orion.cli.launching import preloading_environment

    if importlib.util.find_spec("torch") is None:
        raise Refused("torch is not installed, and the threads work with it")
    environment = preloading_environment(os.environ, hook.library(), None)
    command = [sys.executable, "-m", "orion.bench.overhead.threads_cost", "--rounds", str(rounds), "--dtypes", dtypes]
    command += ["--output", str(output)] * (output is not None) + ["--json"] * as_json
    sys.stdout.flush()
    os.execve(sys.executable, command, environment)
