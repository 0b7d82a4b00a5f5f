"""The probe of checkpoints runs all its cases that need no PyTorch on the simulated GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def run_probe(c_build: Path, folder: Path, role: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "measurements.probes.checkpoint", str(folder / "lines"), "--simulated"]
    command += ["--sizes", "8", "--stay", "0.05", "--without", "torch", "--roles", role]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(c_build / "sim")}
    subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=100)
    return [json.loads(line) for line in (folder / "lines").read_text().splitlines()]


@pytest.mark.parametrize("role", ["none", "hook"])
def test_every_case_ends_as_the_simulated_driver_says(c_build: Path, tmp_path: Path, role: str) -> None:
    lines = run_probe(c_build, tmp_path, role)
    assert {line["role"] for line in lines} == {role}
    assert [line for line in lines if line.get("errors") or line.get("exit")] == []
    ends = {line["case"]: line["end"] for line in lines if "end" in line}
    lost = {"imported", "released", "legacy_opened", "room"}
    assert {case for case, end in ends.items() if end == "lost"} == lost
    assert set(ends) == lost | {
        "plain:8",
        "objects",
        "virtual",
        "managed",
        "calls",
        "blocked",
        "queued",
        "legacy_given",
    }
    checks = ("whole", "replayed", "copied")
    assert all(line[check] for line in lines for check in checks if check in line)
    backs = {case: [line["back"] for line in lines if line["case"] == case and "back" in line] for case in ends}
    assert backs["plain:8"] + backs["objects"] == [True] * 5
    assert (backs["managed"], backs["legacy_given"]) == ([False, True], [False])
