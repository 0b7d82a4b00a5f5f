"""The files that a colocation leaves behind, one a run, as the analysis reads them.

    runs/<hp>/<round>/alone.json.gz               hp without neighbours: the reference of its round
    runs/<hp>/<round>/hp-closed-loop.json.gz      hp as fast as it can: its capacity
    runs/<hp>/<round>/<be>/<system>.json.gz       hp beside be
    runs/<hp>/<round>/be-alone/<name>.json.gz     be without neighbours, closed loop

Every file stands for itself, so that a colocation that was cut short can be read, and resumed. Times are seconds from
the run's begin.
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

SUFFIX = ".json.gz"
BE_ALONE = "be-alone"
"""Folder of a round, of the runs without hp."""


class BrokenRunFile(ValueError):
    """A run file that cannot be read; the message is a sentence that names it."""


class _Record(BaseModel):
    """Fields that this version does not know are left alone: a newer harness may say more."""

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)


class SystemSpec(_Record):
    """What shared the GPU, apart from its name."""

    kind: Literal["alone", "timeslice", "mps", "orion", "plain-streams", "foreign"]
    mode: Literal["timeslice", "mps", "threads"] | None = None
    policy: str | None = None
    max_slowdown: float | None = Field(default=None, ge=1.0)

    @property
    def overlap_mode(self) -> str | None:
        """Return the GPU mode if hp and be can run at the same moment in it."""
        mode = {"mps": "mps", "plain-streams": "threads"}.get(self.kind, self.mode)
        return mode if mode in ("mps", "threads") else None


class Workload(_Record):
    """What one process ran."""

    id: str
    workload: str
    options: dict[str, Any] = {}
    about: dict[str, Any] = {}

    @property
    def facts(self) -> dict[str, Any]:
        """Options, and what the process said of itself (its defaults), in one dictionary; options win."""
        details = self.about.get("details")
        return {**(details if isinstance(details, dict) else {}), **self.options}

    @property
    def likeness(self) -> str:
        """Equal for equal work, whatever the client is called."""
        return json.dumps([self.workload, self.options], sort_keys=True)


class BestEffort(Workload):
    """A best-effort client and the steps that it completed."""

    ends: list[float] = []
    amount: float = Field(default=1.0, gt=0)
    """Units that a step processes."""
    weight: float = Field(default=1.0, gt=0)
    """Of its grant, among the be clients of the run."""


class Disturbance(_Record):
    """What the harness did elsewhere on the host during a run, or saw there."""

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
    """None: it was not looked at."""
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
        """Where it was made; empty where that is not known, or simulated."""
        return str(self.device.get("uuid", ""))

    @property
    def seconds(self) -> float:
        """Length of the window."""
        return self.window[1] - self.window[0]

    @property
    def open_loop(self) -> bool:
        """Whether requests arrived by themselves; else hp ran as fast as it could."""
        return bool(self.arrivals)

    @property
    def first(self) -> int:
        """Index of the first request that counts: the first to arrive after the lead."""
        return int(np.searchsorted(self.arrivals, self.window[0]))

    @property
    def latencies(self) -> Samples:
        """Seconds from scheduled arrival to end, of the requests that count."""
        return _array(self.ends[self.first :]) - _array(self.arrivals[self.first :])

    @property
    def services(self) -> Samples:
        """Seconds from start to end, of the requests that count."""
        return _array(self.ends[self.first :]) - _array(self.starts[self.first :])

    @property
    def iterations(self) -> Samples:
        """Seconds of each iteration of a closed loop that began and ended in the window."""
        ends = _array(self.ends)
        return np.diff(ends[(ends >= self.window[0]) & (ends <= self.window[1])])


def read(path: Path, root: Path) -> Run:
    """Read one run file.

    Args:
        path: The file.
        root: The output folder; the sentence of an error names the file relative to it.

    Raises:
        BrokenRunFile: It cannot be read, or what it says cannot be.
    """
    name = path.relative_to(root)
    try:
        return Run.model_validate_json(gzip.decompress(path.read_bytes()))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the run"
        raise BrokenRunFile(f"{name} is broken: {where}: {first['msg']}") from error
    except (OSError, EOFError, zlib.error) as error:
        raise BrokenRunFile(f"{name} is broken: {error}") from error


class RunFolder:
    """The run files of an output folder, found by what they are; what failed or is broken is remembered, not raised."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.failures: dict[str, str] = {}
        """Why a file holds nothing to analyse, in a sentence, by file."""
        self._kept: dict[Path, Run | None] = {}
        self._seen: set[Path] = set()

    def hp_ids(self) -> list[str]:
        """Names of the hp sides, sorted."""
        return [path.name for path in _folders(self.root / "runs")]

    def rounds(self, hp: str) -> list[Path]:
        """Folders of an hp's rounds, in order."""
        return sorted(_folders(self.root / "runs" / hp), key=lambda path: (len(path.name), path.name))

    def be_ids(self, hp: str) -> list[str]:
        """Names of what ran beside an hp, sorted."""
        return sorted({be.name for folder in self.rounds(hp) for be in _folders(folder)} - {BE_ALONE})

    def systems(self, hp: str, be: str) -> list[str]:
        """Names of the systems beside an hp and a be in any round, sorted."""
        return sorted({_stem(path) for folder in self.rounds(hp) for path in (folder / be).glob(f"*{SUFFIX}")})

    def be_alone(self, hp: str) -> list[Path]:
        """Files of be alone in the rounds of an hp."""
        return sorted((self.root / "runs" / hp).glob(f"*/{BE_ALONE}/*{SUFFIX}"))

    def load(self, path: Path) -> Run | None:
        """Return a run that can be analysed; None for one that is missing, failed or broken."""
        if path not in self._kept:
            self._seen.add(path)
            self._kept[path] = self._read(path)
        return self._kept[path]

    def forget(self, below: Path) -> None:
        """Let go of runs that are no longer needed: a big colocation does not fit into memory at once."""
        for path in [path for path in self._kept if path.is_relative_to(below)]:
            del self._kept[path]

    def check_rest(self) -> None:
        """Read what nobody asked for, so that no failure goes unnamed."""
        for path in sorted(self.root.glob(f"runs/**/*{SUFFIX}")):
            if path not in self._seen:
                self.load(path)
                self.forget(path)

    def _read(self, path: Path) -> Run | None:
        if not path.exists():
            return None
        try:
            run = read(path, self.root)
        except BrokenRunFile as error:
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
