"""Orion's job files: a JSON list of clients, the last one with priority, as the system of that name reads them.

Names of networks become workloads of ours; what a file says of profiles (`kernel_file`, `num_kernels` and their
`additional_` forms) is accepted and not used: durations are learnt by kernel while the job runs, and a profile by
position in a sequence is wrong as soon as a batch size changes.
"""

import itertools
import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from orion.bench.workloads import KINDS, WorkloadError, check

DROPPED = 10
"""Iterations of each client that do not count, as in Orion."""

_LEAST_RPS = 1e-6
"""One in eleven days; no clock sleeps for as long as the least number says."""

_NETWORKS = {
    "resnet50": "resnet50",
    "rnet": "resnet50",
    "mobilenetv2": "mobilenetv2",
    "mnet": "mobilenetv2",
    "bert": "bert",
    "transformer": "gpt",
    "gpt": "gpt",
}
_SERVED = {"gpt": "gpt-prefill"}  # else NAME-inference


class JobFileError(ValueError):
    """A job file that cannot be run; the text is a sentence."""


class Arguments(BaseModel):
    """What Orion hands to a client's own function."""

    model_config = ConfigDict(extra="ignore", frozen=True, protected_namespaces=())

    model_name: str = ""
    batchsize: int = Field(default=1, ge=1)
    rps: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """ Requests a second; 0: one after the other. """
    uniform: bool = False
    dummy_data: bool = True
    train: bool = False
    input_file: str = ""


class Entry(BaseModel):
    """One client of the file."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    arch: str = Field(min_length=1)
    num_iters: int = Field(gt=DROPPED)
    kernel_file: str | None = None
    args: Arguments = Arguments()


_Entries = TypeAdapter(Annotated[list[Entry], Field(min_length=1, max_length=12)])


@dataclass(frozen=True)
class Job:
    """One client, ready to be run.

    Attributes:
        name: as the file calls it.
        role: "hp" or "be".
        kind: of workload.
        options: of the workload.
        iterations: how many, those that do not count included.
        gaps: seconds between arrivals, one an iteration; empty: a closed loop.
    """

    name: str
    role: str
    kind: str
    options: dict[str, Any]
    iterations: int
    gaps: tuple[float, ...]

    @property
    def arrivals(self) -> list[float]:
        """When each request is due, seconds from the begin; empty: a closed loop."""
        return list(itertools.accumulate(self.gaps))


def read_jobs(path: Path, seed: int = 0) -> list[Job]:
    """Read a job file.

    Args:
        path: of the file; a relative `input_file` in it is looked for beside it.
        seed: of Poisson arrivals.

    Raises:
        JobFileError: it cannot be read, or names what there is not.
    """
    try:
        entries = _Entries.validate_json(path.read_bytes())
    except OSError as error:
        raise JobFileError(f"{path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise JobFileError(f"{path}: {f'client {place}: ' if place else ''}{first['msg']}") from error
    return [_job(path, entry, number, len(entries), seed) for number, entry in enumerate(entries)]


def _job(path: Path, entry: Entry, number: int, clients: int, seed: int) -> Job:
    kind, options = _workload(path, entry)
    try:
        check(kind, options)
    except WorkloadError as error:
        raise JobFileError(f"{path}: client {number}: {error}") from error
    gaps = tuple(_gaps(path, entry, random.Random(seed * 1000 + number)))
    role = "hp" if number == clients - 1 else "be"
    return Job(entry.args.model_name or entry.arch, role, kind, options, entry.num_iters, gaps)


def _workload(path: Path, entry: Entry) -> tuple[str, dict[str, Any]]:
    """Find what a client runs: by Orion's names of networks, or by one of our workloads' own."""
    for name in (entry.args.model_name, entry.arch):
        if name in KINDS:
            takes_batch = "batch" in KINDS[name].options.model_fields
            return name, {"batch": entry.args.batchsize} if takes_batch else {}
        network = _NETWORKS.get(name.lower().replace("_", "").replace("-", "").removesuffix("train"))
        if network is None:
            continue
        kind = f"{network}-training" if entry.args.train else _SERVED.get(network, f"{network}-inference")
        if kind not in KINDS:
            trained = sorted(network for network in set(_NETWORKS.values()) if f"{network}-training" in KINDS)
            raise JobFileError(f"{path}: {name} cannot be trained here; {', '.join(trained)} can")
        return kind, {"batch": entry.args.batchsize}
    known = ", ".join([*_NETWORKS, *KINDS])
    raise JobFileError(f"{path}: there is no network {entry.args.model_name or entry.arch!r}; there are {known}")


def _gaps(path: Path, entry: Entry, draw: random.Random) -> list[float]:
    if entry.args.input_file:
        return _trace(path.parent / entry.args.input_file, entry.num_iters)
    if entry.args.rps == 0:
        return []
    if entry.args.rps < _LEAST_RPS:
        raise JobFileError(f"{path}: rps {entry.args.rps:g} is none: give {_LEAST_RPS:g} or more, or 0 for no pauses")
    if entry.args.uniform:
        return [1 / entry.args.rps] * entry.num_iters
    return [draw.expovariate(entry.args.rps) for _ in range(entry.num_iters)]


def _trace(path: Path, iterations: int) -> list[float]:
    """Read a JSON list of seconds between arrivals."""
    try:
        gaps = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise JobFileError(f"the trace {path} cannot be read: {error}") from error
    if not isinstance(gaps, list) or not all(type(gap) in (int, float) and 0 <= gap < 1e6 for gap in gaps):
        raise JobFileError(f"the trace {path} must be a JSON list of seconds between arrivals")
    if len(gaps) < iterations:
        raise JobFileError(f"the trace {path} has {len(gaps)} arrivals, and num_iters is {iterations}")
    return [float(gap) for gap in gaps[:iterations]]
