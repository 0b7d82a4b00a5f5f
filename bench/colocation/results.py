"""The output folder: one file a run, whole or not there, so that what exists need not be measured again.

    scenario.yaml       what was measured, nothing left to look up
    machine.json        on what
    runs/...            one gzipped JSON a run; see `plan` for the names

Files that other measurements wrote there are never touched. The machine's name is left out on purpose.
"""

import gzip
import json
import os
import platform
import zlib
from importlib import metadata
from pathlib import Path
from typing import Any

from orion.bench import raw_data
from orion.bench.colocation import scenario as scenarios
from orion.bench.colocation.gpus import Device
from orion.bench.colocation.scenario import Scenario, ScenarioError

FORMAT = 1


class Results:
    """An output folder."""

    def __init__(self, folder: Path) -> None:
        """Args: folder may exist or not; nothing is written before `open`."""
        self.folder = folder

    def check(self, scenario: Scenario) -> None:
        """Refuse a folder that holds something else.

        Raises:
            ScenarioError: One sentence.
        """
        written = self.folder / "scenario.yaml"
        if not self.folder.exists():
            return
        if not self.folder.is_dir():
            raise ScenarioError(f"--output {self.folder} is no folder")
        if not written.exists():
            if any(self.folder.iterdir()):
                raise ScenarioError(f"--output {self.folder} holds files and no scenario.yaml: give an empty folder")
            return
        if scenarios.read(written) != scenario:
            raise ScenarioError(
                f"{written} is not the scenario that is asked for now (rounds, requests and seed count too), so its "
                "runs cannot be taken over: give another --output, or remove that folder"
            )

    def open(self, scenario: Scenario, devices: list[Device], simulated: bool) -> None:
        """Make the folder and say in it what is measured on what.

        Raises:
            ScenarioError: One sentence.
        """
        machine = json.dumps(describe(devices, simulated), indent=2) + "\n"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            _replace(self.folder / "scenario.yaml", scenarios.write(scenario).encode())
            _replace(self.folder / "machine.json", machine.encode())
        except OSError as error:
            raise ScenarioError(f"--output {self.folder} cannot be written: {error.strerror}") from error

    def read(self, path: str) -> dict[str, Any] | None:
        """Return a run that was measured; None if it was not, or failed, or is damaged."""
        try:
            run = json.loads(gzip.decompress((self.folder / path).read_bytes()))
        except (OSError, EOFError, ValueError, zlib.error):
            return None
        usable = isinstance(run, dict) and run.get("format") == FORMAT and run.get("error") is None
        return run if usable else None

    def write(self, path: str, run: dict[str, Any]) -> None:
        """Write a run, whole or not at all."""
        whole = self.folder / path
        whole.parent.mkdir(parents=True, exist_ok=True)
        raw_data.write(whole, {"format": FORMAT, **run})


def describe(devices: list[Device], simulated: bool) -> dict[str, Any]:
    """Return what a reader of the figures has to know of the machine."""
    return {
        "gpu": "simulated" if simulated else raw_data.describe_machine(),
        "gpus": [device.to_json() for device in devices],
        "simulated": simulated,
        "torch": _version("torch"),
        "orion": _version("orion-gpu"),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "processors": os.cpu_count(),
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _replace(path: Path, data: bytes) -> None:
    fresh = path.with_name(path.name + ".new")
    fresh.write_bytes(data)
    fresh.replace(path)
