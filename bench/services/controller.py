"""`orion bench services`: makes the runs of a scenario that are missing, one file for each, and prints a line for each.

A run that fails is noted in its file and made again by the next command. Each wait for a worker has a deadline.
"""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orion.bench import raw_data
from orion.bench.commandline import interruptible, say
from orion.bench.services import engines, pairs, profile, scenario
from orion.bench.services.processes import Post, Processes, settings_for
from orion.bench.services.scenario import Scenario
from orion.errors import Conflict, Invalid, OrionError

PARTS = ("profile", "pairs", "climb", "engine")
DEVICES = ("cuda", "cpu", "fake")
SLACK = 5.0  # seconds that a run may take longer than expected, when it has to end in time


@dataclass
class Output:
    """The output folder, and the runs of this command."""

    folder: Path
    stop_at: float
    """Seconds of CLOCK_MONOTONIC: no run starts that would end later."""
    failed: list[str] = field(default_factory=list)
    made: int = 0
    left: int = 0

    def path(self, name: str) -> Path:
        """Return the file of a run."""
        return self.folder / "runs" / f"{name}.json.gz"

    def has(self, name: str) -> bool:
        """Return whether a run is complete."""
        path = self.path(name)
        return path.exists() and not raw_data.read(path).get("error")

    def make(
        self, name: str, seconds: float, measure: Callable[[], tuple[dict[str, Any], str]]
    ) -> dict[str, Any] | None:
        """Make a run, unless it is complete or would end too late.

        Args:
            name: Name of the run and of its file.
            seconds: How long the run takes.
            measure: Returns what the file holds, and a few words for the line of progress.

        Returns:
            The content of the file; None if the run failed or did not start.
        """
        if self.has(name):
            return raw_data.read(self.path(name))
        if time.monotonic() + seconds > self.stop_at:
            self.left += 1
            return None
        began = time.monotonic()
        try:
            found, words = measure()
        except OrionError as error:
            self.write(name, {"error": str(error)})
            self.failed.append(f"{name}: {error}")
            say(f"{name}: FAILED: {' '.join(str(error).split())[:300]}")
            return None
        self.write(name, {**found, "error": None})
        self.made += 1
        say(f"{name} ({time.monotonic() - began:.1f} s): {words}")
        return found

    def write(self, name: str, content: dict[str, Any]) -> None:
        """Write a run's file."""
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        raw_data.write(path, content)


def run(path: Path, folder: Path, only: Sequence[str], device: str, stop_after: float) -> int:
    """Measure the parts of a scenario.

    Args:
        path: The scenario.
        folder: The output; an existing one is continued.
        only: Parts; empty: all.
        device: `cuda`, `cpu` or `fake`.
        stop_after: Seconds from now; no run starts that would end later.

    Returns:
        The exit status: 0, or 1 if a run failed.

    Raises:
        OrionError: The scenario or an option is wrong, or no process can be started.
    """
    for part in only:
        if part not in PARTS:
            raise Invalid(f"--only {part}: there is no such part; there are {', '.join(PARTS)}")
    if device not in DEVICES:
        raise Invalid(f"--device {device}: there is no such device; there are {', '.join(DEVICES)}")
    wanted = scenario.read(path)
    output = Output(folder, time.monotonic() + stop_after - SLACK)
    _claim(output, path, device)
    services = {name: service.model_dump() for name, service in wanted.services.items()}
    settings = settings_for(services, profile.sizes(wanted), wanted.engine.model_dump())
    with Processes(device, settings) as processes:
        for part in only or PARTS:
            _part(part, wanted, processes, output)
    say(f"{output.made} runs made, {len(output.failed)} failed, {output.left} left for the next command")
    for sentence in output.failed:
        print(f"orion bench: {' '.join(sentence.split())}", file=sys.stderr)
    return 1 if output.failed else 0


def run_to_exit(path: Path, folder: Path, only: Sequence[str], device: str, stop_after: float) -> int:
    """Call `run` for the command line; return 130 after Ctrl-C, when all processes have ended."""
    with interruptible():
        try:
            return run(path, folder, only, device, stop_after)
        except KeyboardInterrupt:
            print(
                f"orion bench: interrupted; all processes have ended, and the runs so far are in {folder}: the same "
                "command continues from there",
                file=sys.stderr,
            )
            return 130


def _part(part: str, wanted: Scenario, processes: Processes, output: Output) -> None:
    say(f"part {part}")
    if part == "profile":
        profile.measure(wanted, processes, output)
    elif part == "pairs":
        pairs.measure(wanted, processes, output)
    elif part == "climb":
        pairs.climb(wanted, processes, output)
    else:
        processes.drop(_other_posts(wanted))
        engines.measure(wanted, processes, output)


def _other_posts(wanted: Scenario) -> list[Post]:
    return list(dict.fromkeys([*profile.posts(wanted), *pairs.posts(wanted.pairs.all_ways)]))


def _claim(output: Output, path: Path, device: str) -> None:
    """Keep the scenario in the folder; refuse a folder of another scenario or device."""
    kept, machine = output.folder / "scenario.yaml", output.folder / "machine.json"
    text = path.read_text(encoding="utf-8")
    try:
        if kept.exists() and kept.read_text(encoding="utf-8") != text:
            raise Conflict(f"{output.folder} holds runs of another scenario: choose another --output")
        if machine.exists() and raw_data.read(machine)["device"] != device:
            raise Conflict(f"{output.folder} holds runs of another device: choose another --output")
        output.folder.mkdir(parents=True, exist_ok=True)
        if not kept.exists():
            kept.write_text(text, encoding="utf-8")
            raw_data.write(machine, {**raw_data.header("orion.bench.services"), "device": device})
    except OSError as error:
        raise Conflict(f"{output.folder} cannot be written: {error.strerror}; choose another --output") from error
