"""Makes the report of an output folder: report.md for people, summary.json for programs, and plots.

The report can be made again at any time, also while a measurement still writes to the folder. Missing runs are left
out; failed runs and broken files are listed.
"""

import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

from orion.atomic_files import replace_file
from orion.bench.colocation import analysis, programs, rates, tables, targets, threads_verdict
from orion.bench.colocation.run_files import RunFolder
from orion.bench.colocation.summary import PairFigures, Summary
from orion.errors import NotFound

WITHOUT_PLOTS = (
    "No plots, since {why}: run `pip install matplotlib`, then make the report again (`orion bench report {folder}`)."
)


def write(output: Path) -> Summary:
    """Analyse an output folder and write report.md, summary.json and plots into it.

    Args:
        output: The folder of a colocation, which may be incomplete.

    Raises:
        NotFound: The folder has no runs.
        OSError: A file cannot be written.
    """
    if not (output / "runs").is_dir():
        raise NotFound(f"{output} holds no runs of a colocation (there is no folder {output / 'runs'})")
    plots, without = _plotter(output)
    folder = RunFolder(output)
    pairs = _pairs(folder, plots)
    folder.check_rest()
    machine = _machine(output, folder)
    simulated = bool(machine.get("simulated")) or any("imulated" in (pair.hp.gpu or "") for pair in pairs)
    summary = Summary(
        name=_name(output),
        machine=machine,
        simulated=simulated,
        pairs=pairs,
        programs=programs.figures(pairs),
        verdicts=[*targets.judge_all([] if simulated else pairs), threads_verdict.verdict(output)],
        failures=list(folder.failures.values()),
        without_plots=without,
    )
    replace_file(output / "summary.json", f"{summary.model_dump_json(indent=1)}\n".encode(), alone=True)
    replace_file(output / "report.md", tables.markdown(summary).encode(), alone=True)
    return summary


def _pairs(folder: RunFolder, plots: ModuleType | None) -> list[PairFigures]:
    """Analyse each pair, and draw its plots while its run files are in memory."""
    pairs = []
    for hp in folder.hp_ids():
        solos = rates.be_solos(folder, hp)
        for be in folder.be_ids(hp):
            pair = analysis.analyse(folder, hp, be, solos)
            if pair is not None and plots is not None:
                drawn = plots.draw(pair, analysis.latencies(folder, pair), folder.root)
                pair = pair.model_copy(update={"plots": drawn})
            if pair is not None:
                pairs.append(pair)
        folder.forget(folder.root / "runs" / hp)
    return pairs


def _plotter(output: Path) -> tuple[ModuleType | None, str | None]:
    """Return the module that draws, or a sentence that says why there are no plots."""
    try:
        from orion.bench.colocation import plots
    except ImportError as error:
        return None, WITHOUT_PLOTS.format(
            why=f"{(error.name or 'matplotlib').partition('.')[0]} is not installed", folder=output
        )
    return plots, None


def _name(output: Path) -> str:
    """Return the scenario's name, or the folder's name if there is none."""
    try:
        found = re.search(r"^name:\s*(\S.*?)\s*$", (output / "scenario.yaml").read_text(), re.MULTILINE)
    except (OSError, UnicodeDecodeError):
        found = None
    return found[1].strip("'\"") if found else output.resolve().name


def _machine(output: Path, folder: RunFolder) -> dict[str, Any]:
    try:
        machine = json.loads((output / "machine.json").read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        folder.failures["machine.json"] = f"machine.json is broken: {error}"
        return {}
    return machine if isinstance(machine, dict) else {"machine": machine}
