"""Reads job files in the format of the published Orion system: a JSON list of clients, of which the last one is hp.

Names of networks select our workloads. The reader accepts and ignores fields about profiles (`kernel_file`,
`num_kernels` and their `additional_` forms): the hook learns durations by kernel while the job runs. The published
system's profile lists kernels by their position in a sequence, which is wrong as soon as a batch size changes.
"""

import itertools
import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from orion.bench.workloads import KINDS, check
from orion.errors import Invalid, Unreadable

DROPPED = 10
"""Number of first iterations of each client that are not measured; the published system uses the same number."""

_LEAST_RPS = 1e-6
"""One request in eleven days. The gap of a much smaller rate would overflow `time.sleep`."""

_NETWORKS = {
    "resnet50": "resnet50",
    "rnet": "resnet50",
    "mobilenetv2": "mobilenetv2",
    "mnet": "mobilenetv2",
    "bert": "bert",
    "transformer": "gpt",
    "gpt": "gpt",
}
_SERVED = {"gpt": "gpt-prefill"}  # other networks: NAME-inference


class Arguments(BaseModel):
    """The arguments that the published system passes to a client's function."""

    model_config = ConfigDict(extra="ignore", frozen=True, protected_namespaces=())

    model_name: str = ""
    batchsize: int = Field(default=1, ge=1)
    rps: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """ Requests a second; 0: a closed loop. """
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
    """One client, ready to run.

    Attributes:
        name: the name in the file.
        role: "hp" or "be".
        kind: kind of workload.
        options: options of the workload.
        iterations: number of iterations, including the first ones that are not measured.
        gaps: seconds between arrivals, one for each iteration; empty: a closed loop.
    """

    name: str
    role: str
    kind: str
    options: dict[str, Any]
    iterations: int
    gaps: tuple[float, ...]

    @property
    def arrivals(self) -> list[float]:
        """Scheduled arrival of each request, seconds from the start; empty: a closed loop."""
        return list(itertools.accumulate(self.gaps))


def read_jobs(path: Path, seed: int = 0) -> list[Job]:
    """Read a job file.

    Args:
        path: path of the file; a relative `input_file` is relative to the file's folder.
        seed: seed of Poisson arrivals.

    Raises:
        Unreadable: The file cannot be read, or names an unknown network.
    """
    try:
        entries = _Entries.validate_json(path.read_bytes())
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise Unreadable(f"{path}: {f'client {place}: ' if place else ''}{first['msg']}") from error
    return [_job(path, entry, number, len(entries), seed) for number, entry in enumerate(entries)]


def _job(path: Path, entry: Entry, number: int, clients: int, seed: int) -> Job:
    kind, options = _workload(path, entry)
    try:
        check(kind, options)
    except Invalid as error:
        raise Unreadable(f"{path}: client {number}: {error}") from error
    gaps = tuple(_gaps(path, entry, random.Random(seed * 1000 + number)))
    role = "hp" if number == clients - 1 else "be"
    return Job(entry.args.model_name or entry.arch, role, kind, options, entry.num_iters, gaps)


def _workload(path: Path, entry: Entry) -> tuple[str, dict[str, Any]]:
    """Return a client's workload. The client names a network as the published system does, or one of our workloads."""
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
            raise Unreadable(f"{path}: {name} cannot be trained here; {', '.join(trained)} can")
        return kind, {"batch": entry.args.batchsize}
    known = ", ".join([*_NETWORKS, *KINDS])
    raise Unreadable(f"{path}: there is no network {entry.args.model_name or entry.arch!r}; there are {known}")


def _gaps(path: Path, entry: Entry, draw: random.Random) -> list[float]:
    if entry.args.input_file:
        return _trace(path.parent / entry.args.input_file, entry.num_iters)
    if entry.args.rps == 0:
        return []
    if entry.args.rps < _LEAST_RPS:
        raise Unreadable(
            f"{path}: rps {entry.args.rps:g} is too small: give {_LEAST_RPS:g} or more, or 0 for no pauses"
        )
    if entry.args.uniform:
        return [1 / entry.args.rps] * entry.num_iters
    return [draw.expovariate(entry.args.rps) for _ in range(entry.num_iters)]


def _trace(path: Path, iterations: int) -> list[float]:
    """Read a JSON list of seconds between arrivals."""
    try:
        gaps = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise Unreadable(f"the trace {path} cannot be read: {error}") from error
    if not isinstance(gaps, list) or not all(type(gap) in (int, float) and 0 <= gap < 1e6 for gap in gaps):
        raise Unreadable(f"the trace {path} must be a JSON list of seconds between arrivals")
    if len(gaps) < iterations:
        raise Unreadable(f"the trace {path} has {len(gaps)} arrivals, but num_iters is {iterations}")
    return [float(gap) for gap in gaps[:iterations]]
