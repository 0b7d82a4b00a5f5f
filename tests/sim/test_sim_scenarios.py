"""Each function of a scenario file is a test: it drives the simulated libcuda through NVIDIA's own bindings."""

import ast
import re
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ENTRIES = HERE.parents[1] / "hook" / "sim" / "generated" / "entries.inc"
# Exact times, because no real time passes.
VIRTUAL = ("scenario_work.py", "scenario_capture.py", "scenario_green.py", "scenario_pieces.py", "scenario_paging.py")


def scenarios() -> list[tuple[str, str]]:
    found = []
    for file in sorted(HERE.glob("scenario_*.py")):
        for item in ast.parse(file.read_text()).body:
            if isinstance(item, ast.FunctionDef) and not item.args.args and ast.unparse(item.returns or item) == "None":
                found.append((file.name, item.name))
    return found


@pytest.mark.parametrize(("file", "scenario"), scenarios())
def test_scenario(run_scenario: Callable[..., object], file: str, scenario: str) -> None:
    rows = re.findall(r"ENTRY\((\w+),.* (\w+)\)", ENTRIES.read_text())
    entries = " ".join(f"{name}={symbol}" for name, symbol in rows)
    clock = "virtual" if file in VIRTUAL else "real"
    run_scenario(file, scenario, ORION_SIM_CLOCK=clock, ORION_SIM_GPUS="2", ENTRIES=entries)
