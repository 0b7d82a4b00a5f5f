"""`orion bench`: the options; the measurements themselves live in orion.bench."""

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
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the runs and the time they take.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """A latency-critical workload beside best-effort ones, under every system of a scenario.

    Goes on where it stopped, and tries failed runs again. The report is made at the end.
    """  # fmt: skip
    from orion.bench.colocation import measure

    return measure.run(
        measure.Options(scenario, output, simulated, rounds, requests, only, gpus, dry_run, as_json)
    )  # fmt: skip


@app.command(name="report")
def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The output of `orion bench colocation`.")],
) -> int:
    """Make report.md, summary.json and the plots of a measurement again."""
    try:
        from orion.bench.colocation import report as reports

        reports.write(folder)
    except ImportError as error:
        raise Refused(f"{error.name} is not installed, and the report needs it") from error
    except (ValueError, OSError) as error:
        raise Refused(str(error)) from error
    typer.echo(f"Report: {folder / 'report.md'}")
    return 0
