"""`orion profile`: measures, imports, shows and loads profiles of a workload's kernels.

`kernels` exits with the program's status. If this status is 0 but the profiler saw no kernel, `kernels` exits with 3.
"""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orion.cli import roots
from orion.cli.errors import ProgramFailed
from orion.cli.profiling.units import Unit
from orion.errors import Conflict, Invalid

if TYPE_CHECKING:
    from orion.cli.profiling import nsight_compute
    from orion.cli.profiling.collected import Collected
    from orion.crds.profile import GPUProfile
    from orion.node_agent.api import agent_pb2

NO_KERNEL = 3
TABLE_ROWS = 20

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich", help="Measure a workload's kernels.")

Output = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE.yaml", help="The file for the GPUProfile.")
]
Name = Annotated[str | None, typer.Option(help="The profile's name.", show_default="the program's or the file's")]
Report = Annotated[
    Path | None,
    typer.Option(
        metavar="REPORT.csv",
        help="Take classes (compute, memory) from a report of Nsight Compute: "
        "ncu --csv --page raw --set roofline --section ComputeWorkloadAnalysis CMD > REPORT.csv",
    ),
]
Gpu = Annotated[str, typer.Option(metavar="UUID|INDEX|all", help="The GPU.")]
Slot = Annotated[str | None, typer.Option(metavar="NAME", help="A single slot, such as be-0.", show_default="all")]


@app.command(name="kernels", context_settings={"allow_interspersed_args": False})
def kernels(
    command: Annotated[list[str], typer.Argument(help="The program and its arguments, after --.", metavar="CMD")],
    output: Output = None,
    csv: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv", help="Also write a profile file of Orion (EuroSys'24): one row per launch, in order."
        ),
    ] = None,
    csv_per_kernel: Annotated[bool, typer.Option("--csv-per-kernel", help="With --csv: one row per kernel.")] = False,
    csv_launches: Annotated[
        int, typer.Option(min=1, max=10_000_000, help="With --csv: at most so many launches of each process.")
    ] = 100_000,
    ncu: Report = None,
    counters: Annotated[
        bool,
        typer.Option("--counters", help="Run the program once more under ncu, if allowed, and take classes from that."),
    ] = False,
    name: Name = None,
) -> None:
    """Run a program and measure its kernels: duration, SMs needed, registers, shared memory.

    The command needs no rights and no change of the program. It also measures child processes and CUDA graphs. Nothing
    else should use the GPU meanwhile. Without [bold]--output[/bold] it prints the result as a table.

    Only hardware counters show whether compute or memory limits a kernel. They need rights: root, or the driver's
    NVreg_RestrictProfilingToAdminUsers=0. With these rights, give [bold]--counters[/bold] (slow: ncu repeats each
    kernel). Without them, give a report from elsewhere with [bold]--ncu[/bold], here or later to
    [bold]orion profile classify[/bold].

    CUPTI serves one profiler per process. So a program that traces itself with torch.profiler gets a trace without
    kernels under this command.

    [bold]orion profile kernels -o profile.yaml -- python serve.py[/bold]
    """
    from orion import hook
    from orion.cli.profiling import building, collected, running

    library = hook.profiler()
    if counters and ncu:
        raise Invalid("--counters makes the report that --ncu reads: give one of them")
    report = _read_report(ncu)
    launches = csv_launches if csv and not csv_per_kernel else 0
    with tempfile.TemporaryDirectory(prefix="orion-profile-") as folder:
        status = running.run_profiled(command, library, Path(folder), launches)
        found = collected.read_folder(Path(folder))
    profile = building.build_profile(found, command, name or (output.stem if output else None))
    if not profile.spec.kernels:
        raise ProgramFailed(_why_none(found, status), status or NO_KERNEL)
    profile = _classified(profile, _read_counters(command) if counters else report)
    _write_or_show(profile, output)
    if csv:
        _write_csv(profile, found, csv, csv_per_kernel)
    raise typer.Exit(status)


@app.command(name="show")
def show(
    file: Annotated[Path, typer.Argument(metavar="FILE.yaml", help="A GPUProfile.")],
    rows: Annotated[int, typer.Option(min=1, help="Kernels to show.")] = TABLE_ROWS,
) -> None:
    """Show a profile: each kernel's share of the GPU time, duration, SMs and class."""
    from orion.cli.profiling import loading

    _show(loading.read_profile(file), rows)


@app.command(name="import")
def import_orion(
    file: Annotated[Path, typer.Argument(metavar="ORION.csv", help="Name,Profile,Memory_footprint,SM_usage,Duration")],
    output: Output = None,
    model_sms: Annotated[int | None, typer.Option(min=1, help="The number of SMs of the measured GPU.")] = None,
    unit: Annotated[
        Unit, typer.Option(help="The unit of Duration: Orion's files use ns, files of kernel_intercept us.")
    ] = Unit.NS,
    ncu: Report = None,
    name: Name = None,
) -> None:
    """Make a GPUProfile from a profile file of Orion (EuroSys'24)."""
    from orion.cli.profiling import orion_csv

    profile = orion_csv.to_profile(orion_csv.read_rows(file, unit), name or file.stem, model_sms)
    _write_or_show(_classified(profile, _read_report(ncu)), output)


@app.command(name="classify")
def classify(
    file: Annotated[Path, typer.Argument(metavar="FILE.yaml", help="A GPUProfile.")],
    ncu: Annotated[
        Path, typer.Option(metavar="REPORT.csv", help="A report of Nsight Compute, as for `orion profile kernels`.")
    ],
    output: Output = None,
) -> None:
    """Put the classes of an Nsight Compute report into a profile. Without --output this changes the file."""
    from orion.cli.profiling import loading

    _write_or_show(_classified(loading.read_profile(file), _read_report(ncu)), output or file)


@app.command(name="load")
def load(
    file: Annotated[Path, typer.Argument(metavar="FILE.yaml", help="A GPUProfile.")],
    gpu: Gpu = "all",
    slot: Slot = None,
    root: roots.Root = None,
) -> None:
    """Load a profile into an agent: clients of its slots then know these kernels before they measure them.

    A class (compute, memory) from the profile replaces the learnt one; clients measure durations again. The profile
    replaces the slot's former profile, reaches running clients, and survives the agent. For a slot that does not exist
    yet: [bold]orion run --profile FILE.yaml[/bold].
    """
    from orion.cli.profiling import loading

    rows = loading.read_rows(file)
    _print_slots(_give(rows, gpu, slot, root))


@app.command(name="unload")
def unload(gpu: Gpu = "all", slot: Slot = None, root: roots.Root = None) -> None:
    """Remove the profiles from an agent's slots. What clients measured stays."""
    _print_slots(_give([], gpu, slot, root))


def _give(rows: "list[agent_pb2.ProfileRow]", gpu: str, slot: str | None, root: Path | None) -> "list[agent_pb2.Slot]":
    from orion.cli import agents, slot_choice
    from orion.cli.profiling import loading

    with agents.asking((root or roots.default_root()).absolute()) as agent:
        return loading.give(agent, slot_choice.choose_gpus(agent.snapshot(), gpu), slot, rows)


def _print_slots(slots: "list[agent_pb2.Slot]") -> None:
    for slot in slots:
        print(f"{slot.gpu} {slot.name}: {slot.profile_kernels} kernels of a profile, {slot.learnt_kernels} learnt")


def _read_report(path: Path | None) -> "nsight_compute.Report | None":
    from orion.cli.profiling import nsight_compute

    return nsight_compute.read_report(path) if path else None


def _read_counters(command: list[str]) -> "nsight_compute.Report | None":
    from orion.cli.profiling import counters

    with tempfile.TemporaryDirectory(prefix="orion-counters-") as folder:
        found = counters.read_counters(command, Path(folder))
    if not isinstance(found, str):
        return found
    typer.echo(f"orion: note: hardware counters are not available, so classes are unknown: {found}", err=True)
    return None


def _classified(profile: "GPUProfile", report: "nsight_compute.Report | None") -> "GPUProfile":
    from orion.cli.profiling import nsight_compute

    if report is None:
        return profile
    classified, unknown = nsight_compute.classify(profile, report)
    if unknown:
        total = len(profile.spec.kernels)
        typer.echo(
            f"orion: {unknown} of {total} kernels are not in the report, so their class does not change", err=True
        )
    return classified


def _write_or_show(profile: "GPUProfile", path: Path | None) -> None:
    """Write a profile to its file and print a line about it; without a file, show the profile."""
    from orion.crds.profile_file import format_profile

    if path is None:
        _show(profile, TABLE_ROWS)
        return
    try:
        path.write_text(format_profile(profile))
    except OSError as error:
        raise Conflict(f"{path} cannot be written: {error.strerror}") from error
    for warning in profile.spec.source.warnings:
        typer.echo(f"orion: note: {warning}", err=True)
    typer.echo(f"orion: {len(profile.spec.kernels)} kernels written to {path}", err=True)


def _show(profile: "GPUProfile", rows: int) -> None:
    from rich.console import Console

    from orion.cli.profiling import table

    Console().print(table.picture(profile, rows))


def _write_csv(profile: "GPUProfile", found: "Collected", path: Path, per_kernel: bool) -> None:
    from orion.cli.profiling import orion_csv

    rows = orion_csv.kernel_rows(profile) if per_kernel else orion_csv.launch_rows(profile, found)
    written = orion_csv.write_rows(path, rows)
    typer.echo(f"orion: {written} rows written to {path}", err=True)
    launches = sum(kernel.launches for kernel in profile.spec.kernels)
    if not per_kernel and written < launches:
        typer.echo(f"orion: note: the program had {launches} launches; --csv-launches raises the bound", err=True)


def _why_none(found: "Collected", status: int) -> str:
    failures = [process.failure for process in found.processes if process.failure]
    if failures:
        return f"no kernel was seen: {failures[0]}"
    if any(process.dropped or process.records for process in found.processes):
        return "no kernel was seen to its end: the program was killed, or did not wait for its work; let it synchronise"
    if found.processes:
        return (
            "no kernel was seen, though the program used CUDA: it launched none, or was killed within its first second"
        )
    ended = f", which ended with status {status}" if status else ""
    return (
        f"no kernel was seen: the driver was never initialised in this program{ended}; does it run on the GPU at all?"
    )
