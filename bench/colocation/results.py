"""Reads and writes the output folder: one file for each run, so that a later call measures only missing runs.

    scenario.yaml       the scenario, with its systems and traces inline
    machine.json        the machine and its software
    runs/...            one gzipped JSON for each run; see `plan` for the names

Files are written atomically, and other files in the folder are never changed. machine.json leaves out the host name,
because results are published.
"""

import gzip
import json
import os
import platform
import zlib
from importlib import metadata
from pathlib import Path
from typing import Any

from orion.atomic_files import replace_file
from orion.bench import raw_data
from orion.bench.colocation import scenario as scenarios
from orion.bench.colocation.gpus import Device
from orion.bench.colocation.scenario import Scenario
from orion.bench.workloads import KINDS, why_skipped
from orion.errors import Invalid

FORMAT = 1


class Results:
    """One output folder."""

    def __init__(self, folder: Path) -> None:
        """Args: folder need not exist; nothing is written before `open`."""
        self.folder = folder

    def check(self, scenario: Scenario) -> None:
        """Reject a folder that has other content than runs of this scenario.

        Raises:
            Invalid: The folder cannot be used.
        """
        written = self.folder / "scenario.yaml"
        if not self.folder.exists():
            return
        if not self.folder.is_dir():
            raise Invalid(f"--output {self.folder} is not a folder: give a folder")
        if not written.exists():
            if any(self.folder.iterdir()):
                raise Invalid(f"--output {self.folder} has files but no scenario.yaml: give an empty folder")
            return
        if scenarios.read(written) != scenario:
            raise Invalid(
                f"{written} differs from the scenario to measure (perhaps only in rounds, requests or seed), so its "
                "runs cannot be reused: give another --output, or remove that folder"
            )

    def open(self, scenario: Scenario, devices: list[Device], simulated: bool) -> None:
        """Create the folder; write the scenario and the description of the machine.

        Raises:
            Invalid: The folder cannot be written.
        """
        machine = json.dumps(describe(devices, simulated, scenario), indent=2) + "\n"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            replace_file(self.folder / "scenario.yaml", scenarios.write(scenario).encode(), alone=True)
            replace_file(self.folder / "machine.json", machine.encode(), alone=True)
        except OSError as error:
            raise Invalid(f"--output {self.folder} cannot be written: {error.strerror}") from error

    def read(self, path: str) -> dict[str, Any] | None:
        """Return a measured run; None if its file is missing or damaged, or if the run failed."""
        try:
            run = json.loads(gzip.decompress((self.folder / path).read_bytes()))
        except (OSError, EOFError, ValueError, zlib.error):
            return None
        usable = isinstance(run, dict) and run.get("format") == FORMAT and run.get("error") is None
        return run if usable else None

    def write(self, path: str, run: dict[str, Any]) -> None:
        """Write a run's file atomically."""
        whole = self.folder / path
        whole.parent.mkdir(parents=True, exist_ok=True)
        raw_data.write(whole, {"format": FORMAT, **run})


def describe(devices: list[Device], simulated: bool, scenario: Scenario) -> dict[str, Any]:
    """Return the facts about the machine that a reader of the figures needs, and why it skipped programs."""
    kinds = {name: KINDS[name] for name in scenario.workloads if not simulated}
    return {
        "gpu": "simulated" if simulated else raw_data.describe_machine(),
        "gpus": [device.to_json() for device in devices],
        "simulated": simulated,
        "torch": _version("torch"),
        "orion": _version("orion-gpu"),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "processors": os.cpu_count(),
        "packages": {package: version for kind in kinds.values() for package, version in kind.versions.items()},
        "skipped": [why for name in kinds if (why := why_skipped(name))],
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
