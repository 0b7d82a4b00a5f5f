"""`orion bench colocation`: reads a scenario, measures its runs, and writes the report.

The command checks the scenario, its workloads and policies, the output folder and the GPUs before it starts anything.
If a check finds an error, the command reports the error in one sentence. If a run fails later, the command records the
error and continues with the next run.
"""

import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orion import hook
from orion.bench.colocation import gpus
from orion.bench.colocation import scenario as scenarios
from orion.bench.colocation.gpus import Device
from orion.bench.colocation.measurement import Measurement, Outcome
from orion.bench.colocation.plan import Plan, PlannedRun
from orion.bench.colocation.posts import posts_of
from orion.bench.colocation.progress import minutes
from orion.bench.colocation.results import Results
from orion.bench.colocation.runner import FAILURES
from orion.bench.colocation.scenario import Scenario
from orion.bench.colocation.systems import Orion
from orion.bench.commandline import interruptible
from orion.bench.workloads import why_skipped
from orion.errors import Invalid, OrionError

if TYPE_CHECKING:
    from orion.bench.colocation.summary import Summary  # it imports numpy, which only the report needs


@dataclass(frozen=True)
class Options:
    """The options of the command line; cli/bench.py describes them."""

    scenario: Path | Scenario
    """ The file, or the scenario itself. """

    output: Path | None = None
    simulated: bool = False
    rounds: int | None = None
    requests: int | None = None
    only: str | None = None
    gpus: str | None = None
    stop_after: float = math.inf
    """ Seconds from the start; no run is started that would end later. """

    no_report: bool = False
    dry_run: bool = False
    as_json: bool = False


def run(options: Options) -> int:
    """Measure a scenario; print progress on standard error and the outcome on standard output.

    Returns:
        The exit status: 0; 1 if a run failed (listed on standard error) or the measurement could not continue; 2 if it
        could not start; 130 after Ctrl-C.
    """
    try:
        scenario, plan, results, devices = _prepared(options)
    except (OrionError, FileNotFoundError) as error:
        print(f"orion bench: {error}", file=sys.stderr)
        return 2
    measurement = Measurement(scenario, plan, results, devices, options.simulated, options.stop_after)
    if options.dry_run:
        _show_plan(measurement, options.as_json)
        return 0
    with interruptible():
        try:
            outcome = measurement.run()
        except Invalid as error:
            print(f"orion bench: {error}", file=sys.stderr)
            return 2
        except (KeyboardInterrupt, *FAILURES) as error:
            interrupted = isinstance(error, KeyboardInterrupt)
            print(
                f"orion bench: {'interrupted' if interrupted else _reason(error)}; all processes of the measurement "
                f"have ended, and the results so far are in {results.folder}: the same command continues from there",
                file=sys.stderr,
            )
            return 130 if interrupted else 1
    return _concluded(outcome, options)


def _prepared(options: Options) -> tuple[Scenario, Plan, Results, list[Device]]:
    given = options.scenario
    read, folder = (given, Path()) if isinstance(given, Scenario) else (scenarios.read(given), given.parent)
    changes = {name: value for name in ("rounds", "requests") if (value := getattr(options, name)) is not None}
    if "requests" in changes:  # --requests replaces the numbers of the experiments, too
        same = [each.model_copy(update={"requests": None}) for each in read.experiments]
        changes["experiments"] = same
    scenario = read.model_copy(update=changes).resolved(folder)
    plan = Plan(scenario)
    if options.only:
        plan.only(options.only)
    runs = [run for unit in plan.units for run in unit.runs]
    for planned in runs:
        _check(planned, options.simulated)
    if not options.simulated:
        _skip(plan)
    results = Results(options.output or Path("results") / scenario.name)
    results.check(scenario)
    devices = [] if options.dry_run else gpus.choose(options.gpus, options.simulated)
    return scenario, plan, results, devices or [Device(0, "", "")]


def _skip(plan: Plan) -> None:
    """Leave out the programs whose packages are missing, with a sentence for each.

    Raises:
        Invalid: No run is left.
    """
    skipped = {name: why for name in plan.scenario.workloads if (why := why_skipped(name))}
    if not skipped:
        return
    plan.skip(skipped)
    if not plan.units:
        raise Invalid(f"there is nothing to measure: {'; '.join(skipped.values())}")
    for sentence in skipped.values():
        print(f"orion bench: {sentence}", file=sys.stderr)


def _check(run: PlannedRun, simulated: bool) -> None:
    """Raise an error for a run whose workloads, options or hook library are missing or invalid."""
    posts_of(run, simulated)  # checks the workloads and their options
    if not isinstance(run.spec, Orion):
        return
    hook.library(run.spec.baselines)


def _show_plan(measurement: Measurement, as_json: bool) -> None:
    """Print the runs that would be measured, and their expected duration."""
    seconds = {gpus: measurement.expected_seconds(gpus) for gpus in (1, 2, 4, 8)}
    if as_json:
        paths = [planned.path for planned in measurement.missing]
        rounded = {str(gpus): round(expected) for gpus, expected in seconds.items()}
        print(json.dumps({"output": str(measurement.results.folder), "runs": paths, "seconds_by_gpus": rounded}))
        return
    for planned in measurement.missing:
        print(f"{measurement.seconds(planned):7.1f} s  {planned.hp_id}/{planned.be_id or '-'}/{planned.system}"
              f"  round {planned.round + 1}")  # fmt: skip
    print(
        f"{len(measurement.missing)} runs take about "
        + ", ".join(f"{minutes(expected)} on {gpus}" for gpus, expected in seconds.items())
        + " GPUs, if requests take as long as on an H200. The times include the start of processes, during which all "
        "GPUs are idle. Nothing was started."
    )


def _concluded(outcome: Outcome, options: Options) -> int:
    """Make the report and print the outcome; return the exit status."""
    summary, problem = (None, None) if options.no_report else _report(outcome.output)
    if options.as_json:
        found = summary.model_dump(mode="json") if summary else None
        print(json.dumps({
            "output": str(outcome.output), "runs": outcome.made, "reused": outcome.reused,
            "left": outcome.left, "failed": outcome.failed, "summary": found,
        }))  # fmt: skip
    elif summary:
        from orion.bench.colocation import tables

        for line in tables.programs_text(summary):
            print(line)
        print(f"Report: {outcome.output / 'report.md'}")
    if problem:
        print(f"orion bench: {problem}", file=sys.stderr)
    if outcome.left:
        print(f"orion bench: {outcome.left} runs were not started, because they would have ended too late; "
              "the same command continues with them", file=sys.stderr)  # fmt: skip
    if outcome.failed:
        print(f"orion bench: {len(outcome.failed)} runs failed; the same command repeats them:", file=sys.stderr)
        for sentence in outcome.failed.values():
            print(f"  {' '.join(sentence.split())}", file=sys.stderr)
    return 1 if outcome.failed or problem else 0


def _reason(error: BaseException) -> str:
    """Return in one line why a measurement ended, such as a full disk or an unusable GPU."""
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.strerror}: {error.filename}"
    return " ".join(str(error).split())


def _report(output: Path) -> tuple["Summary | None", str | None]:
    """Make the report; return the figures, or why the report could not be made."""
    try:
        from orion.bench.colocation import report

        return report.write(output), None
    except ImportError as error:
        lacking = (
            f"no report, because {error.name} is not installed: install it, then run `orion bench report {output}`"
        )
        return None, lacking
    except (OrionError, ValueError, OSError) as error:
        return None, f"no report: {error}"
