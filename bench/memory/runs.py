"""Makes the runs of `orion bench memory`: one file for each setting."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from orion.bench import kept_runs, raw_data
from orion.bench.commandline import check_only
from orion.bench.memory import agent_cost, beside, changes, credit, density, growth, limit, moving, need
from orion.bench.memory.scenario import SIMULATED_ONLY, Scenario
from orion.bench.memory.stage import Stage

_KINDS: dict[str, Callable[[Stage, Any], dict[str, Any]]] = {
    "changes": changes.measure,
    "growth": growth.measure,
    "beside": beside.measure,
    "density": density.measure,
    "limit": limit.measure,
    "moving": moving.measure,
    "need": need.measure,
    "agent": agent_cost.measure,
    "credit": credit.measure,
}


def run(scenario: Scenario, folder: Path, simulated: bool, only: str | None, say: Callable[[str], None]) -> None:
    """Make all runs that the folder lacks.

    Args:
        scenario: what to measure.
        folder: where the files are; an existing folder is continued.
        simulated: use a simulated GPU.
        only: the name of the one setting to measure; None: all.
        say: prints a line of progress.

    Raises:
        Invalid: no setting has the name, or the folder has runs of other settings.
        Unavailable: there is no GPU, or a process has failed.
    """
    check_only([setting.name for setting in scenario.settings], only)
    kept_runs.claim(folder, {setting.name: setting for setting in scenario.settings}, simulated=simulated)
    for setting in scenario.settings:
        path = folder / f"{setting.name}.json.gz"
        if path.exists() or only not in (None, setting.name):
            continue
        if setting.kind in SIMULATED_ONLY and not simulated:
            say(f"{setting.name}: left out: {SIMULATED_ONLY[setting.kind]}; use --simulated")
            continue
        began = time.monotonic()
        with ExitStack() as stack:
            header = raw_data.header("orion.bench.memory.runs")
            driver = scenario.driver if simulated else scenario.driver.on_a_gpu()
            if simulated and setting.kind == "limit":  # contexts are charged only after they have grown
                driver = driver.model_copy(update={"context_mib": 0})
            stage = Stage(stack, driver, setting, simulated, say)
            measured = _KINDS[setting.kind](stage, setting)
            said = {"simulated": simulated, "costs": driver.model_dump(), "setting": setting.model_dump()}
            raw_data.write(path, {**header, **said, **measured})
        say(f"{setting.name}: {time.monotonic() - began:.0f} s")
