"""`orion demo`: shows what Orion does, in half a minute on any machine.

It has three phases: a latency-critical process (hp) alone; the same requests beside a training process (be); and the
same two processes under Orion. A machine with an NVIDIA GPU and torch runs real models. Any other machine uses the
simulated GPU, whose figures show how Orion works; docs/results has figures from GPUs.
"""

import importlib.util
import json
import math
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from orion.bench import demo_phases
from orion.bench.commandline import OneSentenceParser, interruptible
from orion.bench.demo_phases import Experiment, Outcome, Phase
from orion.bench.samples import percentile
from orion.errors import Invalid, OrionError, Unavailable

SIMULATED_RATE = 85.0  # requests a second of 4 ms each: 34 % of the GPU
FEWEST_REQUESTS = 100  # with fewer, one request decides the 99th percentile
TITLES = {"alone": "hp alone", "unmanaged": "unmanaged", "orion": "under Orion"}


@dataclass(frozen=True)
class Options:
    """The user's options."""

    seconds: float = 6.0
    """Measured length of each phase."""
    rate: float | None = None
    """hp requests a second; None: 34 % of the GPU."""
    seed: int = 1
    """Seed of the arrival times."""
    output: Path = Path("orion-demo.png")
    """File of the picture."""
    simulated: bool | None = None
    """None: a real GPU if torch finds one, else the simulated GPU."""
    as_json: bool = False
    """Print one JSON object on standard output instead of the table."""


def run_demo(options: Options) -> int:
    """Run the demo: progress goes to standard error, results to standard output, the picture to a file.

    Returns:
        The exit status: 0; 1 for a failure; 2 for an invalid option; 130 if interrupted. Errors are on standard error.
    """
    errors = Console(stderr=True)
    try:
        with interruptible():
            outcome = _run_with_progress(make_experiment(options), errors)
        _show(outcome, options)
    except (OrionError, FileNotFoundError) as error:
        errors.print(f"orion demo: {error}", style="red", highlight=False, markup=False, soft_wrap=True)
        return error.exit_status if isinstance(error, OrionError) else 1
    except KeyboardInterrupt:
        errors.print("orion demo: interrupted; everything it started has ended")
        return 130
    return 0


def make_experiment(options: Options) -> Experiment:
    """Choose the GPU and the workloads.

    Raises:
        Invalid: An option is invalid.
    """
    simulated = _choose_simulated(options.simulated)
    rate = options.rate if options.rate is not None else (SIMULATED_RATE if simulated else None)
    for name, value in (("--seconds", options.seconds), ("--rate", rate)):
        if value is not None and not 0 < value < math.inf:
            raise Invalid(f"{name} {value:g}: it must be a positive number")
    if rate is not None and rate * options.seconds < FEWEST_REQUESTS * 1.2:
        raise Invalid(
            f"--rate {rate:g} for --seconds {options.seconds:g} gives too few requests for a 99th percentile; "
            f"rate x seconds must be at least {FEWEST_REQUESTS * 1.2:.0f}"
        )
    folder = options.output.absolute().parent
    if not folder.is_dir():
        raise Invalid(f"--output {options.output}: its folder does not exist; create it or name another")
    if not os.access(options.output if options.output.exists() else folder, os.W_OK):
        raise Invalid(f"--output {options.output}: this user may not write there; name another file")
    if options.output.suffix.lower() != ".png":
        raise Invalid(f"--output {options.output}: the picture is a PNG, so its name must end with .png")
    kinds: tuple[tuple[str, dict[str, Any]], tuple[str, dict[str, Any]]]
    if simulated:
        kinds = ("simulated-inference", {}), ("simulated-training", {})
    else:
        kinds = ("resnet50-inference", {}), ("resnet50-training", {"batch": 64, "traced": True})
    return Experiment(simulated, *kinds, options.seconds, rate, options.seed)


def to_json(outcome: Outcome) -> dict[str, Any]:
    """Return the results as `--json` prints them: hp relative to phase alone, be relative to phase unmanaged."""
    p99_alone = percentile(outcome.phases[0].latencies_ms, 99)
    be_unmanaged = outcome.phases[1].be_per_second
    return {
        "gpu": outcome.gpu,
        "simulated": outcome.simulated,
        "phases": [_phase_to_json(phase, p99_alone, be_unmanaged) for phase in outcome.phases],
    }


def _phase_to_json(phase: Phase, p99_alone: float, be_unmanaged: float) -> dict[str, Any]:
    p50, p95, p99 = (percentile(phase.latencies_ms, rank) for rank in (50, 95, 99))
    ratio = phase.be_per_second / be_unmanaged if phase.be_per_second and be_unmanaged else None
    return {
        "name": phase.name,
        "hp": {
            "requests": len(phase.latencies_ms),
            "p50_ms": round(p50, 3),
            "p95_ms": round(p95, 3),
            "p99_ms": round(p99, 3),
            "ratio_p99": round(p99 / p99_alone, 4),
        },
        "be": {"per_second": round(phase.be_per_second, 3), "ratio": None if ratio is None else round(ratio, 4)},
    }


def _choose_simulated(wanted: bool | None) -> bool:
    if wanted is True:
        return True
    missing = _why_no_gpu()
    if wanted is False and missing:
        raise Invalid(f"--gpu: {missing}; --simulated needs neither torch nor a GPU")
    return bool(missing)


def _why_no_gpu() -> str:
    """Return why real models cannot run here; empty if they can.

    A child process imports torch and checks, so that this process does not load CUDA.
    """
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed (`pip install torch`)"
    question = "import sys, torch; sys.exit(0 if torch.cuda.is_available() else 1)"
    try:
        answer = subprocess.run([sys.executable, "-Pc", question], capture_output=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        return "torch did not answer within two minutes"
    return "" if answer.returncode == 0 else "torch finds no NVIDIA GPU"


def _run_with_progress(experiment: Experiment, console: Console) -> Outcome:
    where = "the simulated GPU" if experiment.simulated else "this machine's GPU"
    console.print(
        "hp (high priority) answers requests, be (best effort) trains beside it: "
        f"three phases of {experiment.seconds:g} s on {where}.",
        highlight=False,
    )
    percent = TextColumn("{task.percentage:>3.0f} %")
    columns = TextColumn("{task.description:<12}"), BarColumn(), percent, TimeElapsedColumn()
    with Progress(*columns, console=console, disable=not console.is_terminal, refresh_per_second=4) as bars:
        tasks = {name: bars.add_task(title, total=1.0, start=False) for name, title in TITLES.items()}

        def progress(phase: str, done: float) -> None:
            task = tasks[phase]
            if not bars.tasks[task].started:
                bars.start_task(task)
            bars.update(task, completed=done)
            if done >= 1.0:
                bars.stop_task(task)

        return demo_phases.run_phases(experiment, progress)


def _show(outcome: Outcome, options: Options) -> None:
    results = to_json(outcome)
    console = Console()
    if options.as_json:
        print(json.dumps(results))
    else:
        console.print(_table(outcome, results))
    picture = _draw(outcome, options.output)
    if options.as_json:
        return
    console.print(f"Timeline: {picture}", highlight=False, soft_wrap=True)
    if outcome.simulated:
        console.print(
            "The GPU is simulated: the figures show how Orion works, not how fast a real GPU is.", highlight=False
        )


def _draw(outcome: Outcome, path: Path) -> str:
    """Draw the picture if matplotlib is installed; return its path, or how to get a picture."""
    if importlib.util.find_spec("matplotlib") is None:
        return "not drawn, because matplotlib is not installed (`pip install matplotlib`)"
    from orion.bench import demo_picture  # imported late: matplotlib takes a second, which would disturb a phase

    try:
        demo_picture.draw(outcome, path)
    except OSError as error:
        raise Unavailable(f"{path} cannot be written: {error.strerror}") from error
    return str(path)


def _table(outcome: Outcome, results: dict[str, Any]) -> Table:
    table = Table(title=f"{outcome.gpu}; hp {outcome.rate:g} requests/s", box=box.SIMPLE_HEAD)
    table.add_column("phase", no_wrap=True)
    for name in (
        "hp\np50",
        "hp\np95",
        "hp\np99",
        "p99 /\nalone",
        f"be\n{outcome.phases[1].be_unit}/s",
        "be /\nunmanaged",
    ):
        table.add_column(name, justify="right", no_wrap=True)
    for phase in results["phases"]:
        hp, be = phase["hp"], phase["be"]
        throughput = (f"{be['per_second']:.1f}", f"{be['ratio']:.2f}") if be["ratio"] else ("", "")
        table.add_row(
            TITLES[phase["name"]],
            *(f"{hp[name]:.1f} ms" for name in ("p50_ms", "p95_ms", "p99_ms")),
            f"{hp['ratio_p99']:.2f}",
            *throughput,
            style="bold" if phase["name"] == "orion" else "",
        )
    return table


def main(arguments: list[str] | None = None) -> int:
    """Run the demo as a separate program; `orion demo` has the same options."""
    parser = OneSentenceParser(prog="orion demo", description="Two processes share a GPU, without and with Orion.")
    parser.add_argument("--seconds", type=float, default=Options.seconds, help="length of a phase")
    parser.add_argument("--rate", type=float, help="hp requests a second; default: 34 %% of the GPU")
    parser.add_argument("--seed", type=int, default=Options.seed, help="seed of the arrival times")
    parser.add_argument("--output", type=Path, default=Options.output, help="file of the picture, a .png")
    parser.add_argument(
        "--simulated", action="store_true", default=None, help="use the simulated GPU even if there is a real one"
    )
    parser.add_argument("--gpu", dest="simulated", action="store_false", help="use a real GPU, and fail without one")
    parser.add_argument("--json", dest="as_json", action="store_true", help="print one JSON object on standard output")
    return run_demo(Options(**vars(parser.parse_args(arguments))))


if __name__ == "__main__":
    sys.exit(main())
