"""`orion simulate cluster`: training jobs through schedulers; orion.simulation.cluster does the work."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orion.cli import extras

if TYPE_CHECKING:
    from orion.cli.simulating.asked import Asked
    from orion.simulation.cluster.runs import Task

TABLE_WIDTH = 110  # a narrower terminal wraps lines, so that no figure is cut


def cluster(
    cluster_file: Annotated[
        Path, typer.Option("--cluster", metavar="FILE.ini|FILE.yaml", help="The servers: Synergy's form, or YAML.")
    ],
    profiles: Annotated[
        Path, typer.Option(metavar="FILE.json", help="Speeds of models by CPUs and memory: Synergy's tables as JSON.")
    ],
    schedulers: Annotated[
        str, typer.Option(metavar="P+M,..|all", help="Policies and mechanisms, such as FIFO+fair,SRTF+tune.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="The folder for results.")],
    replay: Annotated[Path | None, typer.Option(metavar="FILE", help="A trace of jobs; see orion trace show.")] = None,
    generate: Annotated[int | None, typer.Option(metavar="N", help="Generate N jobs as Synergy does.")] = None,
    rate: Annotated[
        str | None, typer.Option(metavar="R[,R]", help="With --generate: jobs an hour; each rate is a run.")
    ] = None,
    seed: Annotated[
        str | None,
        typer.Option(metavar="S[,S]", help="With --generate: random numbers; each seed is a run.", show_default="42"),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(
            metavar="I,L,S", help="With --generate: percent of image, language, speech models.", show_default="20,70,10"
        ),
    ] = None,
    gpu_mix: Annotated[
        str | None,
        typer.Option(
            metavar="single|multi", help="With --generate: GPUs of a job: 1, or 1 to 8.", show_default="single"
        ),
    ] = None,
    record: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --generate: write the jobs as a trace for --replay.")
    ] = None,
    static: Annotated[bool, typer.Option("--static", help="All jobs arrive at the begin.")] = False,
    profile_set: Annotated[
        str, typer.Option(metavar="NAME", help="The set in the file of profiles, such as models-4.")
    ] = "models",
    round_s: Annotated[float, typer.Option("--round", metavar="SECONDS", min=1, help="The length of a round.")] = 300.0,
    restart_cost: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", min=0, help="Time that a move or a pause costs; 0 with --compatible.", show_default="30"
        ),
    ] = None,
    placement: Annotated[
        str, typer.Option(metavar="scattered|packed", help="Take the first GPUs, or those of the fullest servers.")
    ] = "scattered",
    compatible: Annotated[
        str | None, typer.Option(metavar="synergy", help="Decide exactly as Synergy's simulator does.")
    ] = None,
    window: Annotated[
        str | None, typer.Option(metavar="FIRST:LAST", help="Count these jobs only, and end when they have ended.")
    ] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out lines that cannot be read.")] = False,
    skip_unfit: Annotated[bool, typer.Option("--skip-unfit", help="Leave out jobs larger than the cluster.")] = False,
    workers: Annotated[int, typer.Option(metavar="N", min=1, max=1024, help="Processes.")] = 1,
    no_pictures: Annotated[bool, typer.Option("--no-pictures", help="Draw nothing.")] = False,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a page with pictures.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Run training jobs through schedulers on a cluster, and report how long they take.

    [bold]jobs.csv[/bold] has a row for each job, [bold]rounds.csv[/bold] a row for each round. Ctrl-C keeps the runs
    that have finished; the same command goes on with the others.

    [bold]orion simulate cluster --replay jobs.csv --cluster c.ini --profiles p.json --schedulers all -o out[/bold]
    """
    extras.require("highspy", "it solves mechanism opt")
    from orion.cli.simulating import asked

    wanted = asked.read(
        asked.Options(
            cluster_file, profiles, schedulers, output, replay, generate, rate, seed, split, gpu_mix, record, static,
            profile_set, round_s, restart_cost, placement, compatible, window, skip_bad, skip_unfit,
        )
    )  # fmt: skip
    _run(wanted, workers, has_pictures=not no_pictures, html=html, as_json=as_json)


def _run(wanted: "Asked", workers: int, *, has_pictures: bool, html: Path | None, as_json: bool) -> None:
    from orion.cli.simulating import progress
    from orion.simulation.cluster import pictures, report, runs
    from orion.simulation.whole_files import write

    if has_pictures or html is not None:
        import matplotlib  # noqa: F401 - if it is missing, report that before hours of simulation
    if html is not None:
        import jinja2  # noqa: F401
    for note in wanted.notes:
        typer.echo(f"orion: {note}", err=True)
    tasks = runs.tasks(wanted.schedulers, wanted.sources, wanted.setting, wanted.output)
    try:
        with progress.Display(tasks) as display:
            runs.make_all(tasks, workers, display.begun, display.ended)
        made = [runs.made(task) or {} for task in tasks]
        files = runs.gather(tasks, wanted.output)
        drawn = pictures.all_of(made) if has_pictures or html is not None else {}
        files += pictures.draw(drawn, wanted.output) if has_pictures else []
        found = _report(wanted, made, [*files, wanted.output / "summary.json", *([html] if html is not None else [])])
        if html is not None:
            write(html, [report.html(found, list(drawn.values()), wanted.setting.rules)])
        write(wanted.output / "summary.json", [json.dumps(_without_time(found), indent=2), "\n"])
        runs.clear(wanted.output)
    except KeyboardInterrupt:
        typer.echo(f"orion: stopped; {_kept(tasks, wanted.output)}", err=True)
        raise
    if as_json:
        typer.echo(json.dumps(found))
    else:
        _print(found)


def _kept(tasks: "list[Task]", output: Path) -> str:
    from orion.simulation.cluster import runs

    count = sum(runs.made(task) is not None for task in tasks)
    return f"{count} of {len(tasks)} runs are kept in {output}: the same command goes on with the others"


def _report(wanted: "Asked", made: list[dict[str, Any]], files: list[Path]) -> dict[str, Any]:
    fields = (
        "scheduler", "rate", "seed", "jobs", "finished", "refused", "jct_h", "makespan_h", "rounds", "seconds",
        "restarts", "worst_over_fair", "bound",
    )  # fmt: skip
    return {
        "schema": "orion.simulate.cluster/1",
        "compatible": "synergy" if wanted.setting.rules.is_compatible else None,
        "cluster": wanted.setting.cluster.plain(),
        "skipped": [{"line": each.line, "reason": each.reason} for each in wanted.skipped],
        "notes": list(wanted.notes),
        "runs": [{name: run.get(name) for name in fields} for run in made],
        "files": list(map(str, files)),
    }


def _without_time(report: dict[str, Any]) -> dict[str, Any]:
    """Return the report without the values that differ between machines."""
    runs = [{name: value for name, value in run.items() if name != "seconds"} for run in report["runs"]]
    return {**report, "runs": runs, "files": [Path(file).name for file in report["files"]]}


def _print(report: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    from orion.simulation.cluster.report import cells

    console, shape = Console(highlight=False, soft_wrap=True), report["cluster"]
    console.width = max(console.width, TABLE_WIDTH)
    shared = f", {shape['shared_gpus']} of them shared with hp" if shape["shared_gpus"] else ""
    console.print(f"{shape['file']}: {shape['servers']} servers, {shape['gpus']} GPUs{shared}")
    table = Table(box=None, pad_edge=False)
    table.add_column("scheduler", no_wrap=True)
    for title in ("jobs/h", "seed", "jobs", "refused", "mean (h)", "p50", "p99", "max", "makespan (h)", "restarts"):
        table.add_column(title, justify="right")
    for run in report["runs"]:
        table.add_row(*cells(run))
    console.print(table)
    for run in report["runs"]:
        if run["bound"]:
            speeds = f"{run['bound']['reached']:.1f} of at most {run['bound']['speed']:.1f}"
            console.print(
                f"{run['scheduler']}: the mean sum of speeds is {speeds} (the cluster's CPUs and memory as one)"
            )
    if report["skipped"]:
        console.print(f"[yellow]{len(report['skipped'])} lines were left out[/yellow] (--json lists them)")
    console.print("wrote " + ", ".join(report["files"]))
