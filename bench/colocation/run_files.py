"""Reads the files of a colocation, one for each run.

    runs/<hp>/<round>/alone.json.gz               hp alone: the reference of its round
    runs/<hp>/<round>/hp-closed-loop.json.gz      hp alone in a closed loop: its capacity
    runs/<hp>/<round>/<be>/<system>.json.gz       hp beside be
    runs/<hp>/<round>/be-alone/<name>.json.gz     be alone in a closed loop

Here <hp>, <be> and <system> are names, and <round> is a number; `plan` has the complete list. A file does not refer to
other files, so an interrupted colocation can be analysed and resumed. Times are seconds from the start of the run.
"""

import gzip
import itertools
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from orion.bench.estimates import Samples
from orion.errors import Unreadable

SUFFIX = ".json.gz"
BE_ALONE = "be-alone"
"""Folder, in a round's folder, of the runs without hp."""


class _Record(BaseModel):
    """Ignores unknown fields, which a newer harness may have written."""

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)


class SystemSpec(_Record):
    """The definition of a system, without its name."""

    kind: Literal["alone", "timeslice", "mps", "orion", "plain-streams", "foreign"]
    mode: Literal["timeslice", "mps", "threads"] | None = None
    policy: str | None = None
    max_slowdown: float | None = Field(default=None, ge=1.0)

    @property
    def overlap_mode(self) -> str | None:
        """Return the sharing mode if hp and be can run at the same time in it; else None."""
        mode = {"mps": "mps", "plain-streams": "threads"}.get(self.kind, self.mode)
        return mode if mode in ("mps", "threads") else None


class Workload(_Record):
    """The workload of one process."""

    id: str
    workload: str
    options: dict[str, Any] = {}
    about: dict[str, Any] = {}

    @property
    def facts(self) -> dict[str, Any]:
        """What the process reported about itself, such as defaults; the scenario's options replace equal names."""
        details = self.about.get("details")
        return {**(details if isinstance(details, dict) else {}), **self.options}

    @property
    def work_key(self) -> str:
        """A key of workload and options; clients with different names have equal keys for equal work."""
        return json.dumps([self.workload, self.options], sort_keys=True)


class BestEffort(Workload):
    """A best-effort client and its completed steps."""

    ends: list[float] = []
    amount: float = Field(default=1.0, gt=0)
    """Units that a step processes."""
    request: float = Field(default=0.0, ge=0, le=1)
    """The part of the GPU's time that the client's slot requests; 0: none."""

    @property
    def part(self) -> float:
        """The client's part of be's GPU time, in proportion to the parts of the other be clients of the run."""
        return self.request or 0.01


class Disturbance(_Record):
    """An event on another GPU of the host during a run: a start or end of processes, or a failure."""

    gpu: int
    what: str


class Run(_Record):
    """One system in one round."""

    format: Literal[1]
    system: str
    system_spec: SystemSpec
    round: int = Field(ge=0)
    hp: Workload | None = None
    be: list[BestEffort] = []
    load: float | None = None
    rate: float | None = None
    arrivals: list[float] = []
    starts: list[float] = []
    ends: list[float] = []
    window: tuple[float, float]
    device: dict[str, Any] = {}
    disturbances: list[Disturbance] | None = None
    """None: an old file, which did not record disturbances."""
    error: str | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.error is not None:
            return self
        if self.window[0] >= self.window[1]:
            raise ValueError(f"the window ends ({self.window[1]}) before it begins ({self.window[0]})")
        for name, times in self._sequences():
            if any(later < earlier for earlier, later in itertools.pairwise(times)):
                raise ValueError(f"{name} do not ascend")
        if self.arrivals and not len(self.arrivals) == len(self.starts) == len(self.ends):
            counts = f"{len(self.arrivals)} arrivals, {len(self.starts)} starts and {len(self.ends)} ends"
            raise ValueError(f"{counts} are not of the same requests")
        return self

    def _sequences(self) -> Iterator[tuple[str, list[float]]]:
        yield from (("arrivals", self.arrivals), ("starts", self.starts), ("ends", self.ends))
        yield from ((f"be {client.id}'s ends", client.ends) for client in self.be)

    @property
    def gpu_uuid(self) -> str:
        """UUID of the run's GPU; empty if it is unknown or the GPU is simulated."""
        return str(self.device.get("uuid", ""))

    @property
    def seconds(self) -> float:
        """Length of the window in seconds."""
        return self.window[1] - self.window[0]

    @property
    def open_loop(self) -> bool:
        """Whether hp had scheduled arrivals; else it ran in a closed loop."""
        return bool(self.arrivals)

    @property
    def first(self) -> int:
        """Index of the first measured request: the first that arrived after the lead-in."""
        return int(np.searchsorted(self.arrivals, self.window[0]))

    @property
    def latencies(self) -> Samples:
        """Seconds from scheduled arrival to end, of each measured request."""
        return _array(self.ends[self.first :]) - _array(self.arrivals[self.first :])

    @property
    def services(self) -> Samples:
        """Seconds from start to end, of each measured request."""
        return _array(self.ends[self.first :]) - _array(self.starts[self.first :])

    @property
    def iterations(self) -> Samples:
        """Seconds of each closed-loop iteration that began and ended in the window."""
        ends = _array(self.ends)
        return np.diff(ends[(ends >= self.window[0]) & (ends <= self.window[1])])


def read(path: Path, root: Path) -> Run:
    """Read one run file.

    Args:
        path: The file.
        root: The output folder; errors name the file relative to this folder.

    Raises:
        Unreadable: The file cannot be read, or its content is invalid.
    """
    name = path.relative_to(root)
    try:
        return Run.model_validate_json(gzip.decompress(path.read_bytes()))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the run"
        raise Unreadable(f"{name} is broken: {where}: {first['msg']}") from error
    except (OSError, EOFError, zlib.error) as error:
        raise Unreadable(f"{name} is broken: {error}") from error


class RunFolder:
    """Finds and reads the run files of an output folder; collects failed runs and broken files in `failures`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.failures: dict[str, str] = {}
        """For each unusable file, a sentence that says why."""
        self._kept: dict[Path, Run | None] = {}
        self._seen: set[Path] = set()

    def hp_ids(self) -> list[str]:
        """Names of the hp workloads, sorted."""
        return [path.name for path in _folders(self.root / "runs")]

    def rounds(self, hp: str) -> list[Path]:
        """Folders of an hp's rounds, in order."""
        return sorted(_folders(self.root / "runs" / hp), key=lambda path: (len(path.name), path.name))

    def be_ids(self, hp: str) -> list[str]:
        """Names of the be entries beside an hp, sorted."""
        return sorted({be.name for folder in self.rounds(hp) for be in _folders(folder)} - {BE_ALONE})

    def systems(self, hp: str, be: str) -> list[str]:
        """Names of the systems beside an hp and a be in any round, sorted."""
        return sorted({_stem(path) for folder in self.rounds(hp) for path in (folder / be).glob(f"*{SUFFIX}")})

    def be_alone(self, hp: str) -> list[Path]:
        """Files of be alone in the rounds of an hp."""
        return sorted((self.root / "runs" / hp).glob(f"*/{BE_ALONE}/*{SUFFIX}"))

    def load(self, path: Path) -> Run | None:
        """Return a run; None if its file is missing or broken, or if the run failed."""
        if path not in self._kept:
            self._seen.add(path)
            self._kept[path] = self._read(path)
        return self._kept[path]

    def forget(self, below: Path) -> None:
        """Release the memory of runs below a folder: a large colocation does not fit into memory."""
        for path in [path for path in self._kept if path.is_relative_to(below)]:
            del self._kept[path]

    def check_rest(self) -> None:
        """Read the files that were not loaded yet, so that `failures` contains all failures."""
        for path in sorted(self.root.glob(f"runs/**/*{SUFFIX}")):
            if path not in self._seen:
                self.load(path)
                self.forget(path)

    def _read(self, path: Path) -> Run | None:
        if not path.exists():
            return None
        try:
            run = read(path, self.root)
        except Unreadable as error:
            self.failures[str(path.relative_to(self.root))] = str(error)
            return None
        if run.error is not None:
            name = str(path.relative_to(self.root))
            self.failures[name] = f"{name.removesuffix(SUFFIX)} failed: {run.error}"
            return None
        return run


def _array(times: list[float]) -> Samples:
    return np.asarray(times, dtype=np.float64)


def _folders(path: Path) -> list[Path]:
    return sorted(child for child in path.iterdir() if child.is_dir()) if path.is_dir() else []


def _stem(path: Path) -> str:
    return path.name.removesuffix(SUFFIX)
