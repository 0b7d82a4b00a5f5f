"""Many runs: each scheduler at each rate and seed, in one process or in several.

A finished run leaves three files in DIR/.runs. Their name is a digest of everything that the run depends on. So if a
command is interrupted, the same command later makes only the runs that are left. When all runs are made, their rows
become jobs.csv and rounds.csv in the order of the schedulers, rates and seeds. The number of workers changes no byte of
the results.
"""

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from orion.errors import Conflict
from orion.planning.queues.demands import Profile
from orion.simulation import processes
from orion.simulation.whole_files import write

from . import loop, results
from .clusters import Cluster
from .generate import lines
from .jobs import Job
from .rules import Rules
from .schedulers import Scheduler

FORM = 2
""" The version of the files in DIR/.runs, and of a run's results; a change of either raises it. """
FOLDER = ".runs"


@dataclass(frozen=True)
class Source:
    """The jobs of one rate and one seed, or of a trace.

    Attributes:
        jobs: the jobs that fit the cluster.
        refused: the number of jobs that do not fit the cluster.
        rate: the mean number of arrivals in an hour; None for a trace.
        seed: the generator's seed; None for a trace.
    """

    jobs: list[Job]
    refused: int
    rate: float | None = None
    seed: int | None = None


@dataclass(frozen=True)
class Setting:
    """What all runs have in common."""

    profiles: Mapping[str, Profile]
    cluster: Cluster
    rules: Rules

    def digest(self) -> str:
        """Return a digest of the setting."""
        profiles = {model: asdict(profile) for model, profile in sorted(self.profiles.items())}
        return _digest(repr((FORM, profiles, self.cluster.servers, self.rules)))


@dataclass(frozen=True)
class Task:
    """One run that is to be made; any process can make it."""

    scheduler: Scheduler
    source: Source
    setting: Setting
    folder: Path
    key: str

    @property
    def prefix(self) -> str:
        """Return the first columns of the run's rows."""
        seed = "" if self.source.seed is None else str(self.source.seed)
        return f"{self.scheduler},{results.number(self.source.rate)},{seed}"

    def file(self, what: str) -> Path:
        """Return the path of one of the run's files of results."""
        return self.folder / f"{self.key}-{what}"


def tasks(schedulers: Sequence[Scheduler], sources: Sequence[Source], setting: Setting, output: Path) -> list[Task]:
    """Return all runs in their order."""
    common = setting.digest()
    jobs = [_digest("".join(lines(source.jobs))) for source in sources]
    return [
        Task(
            scheduler, source, setting, output / FOLDER,
            # rows begin with rate and seed, and two rates may give the same jobs (--static)
            _digest(repr((common, digest, source.refused, source.rate, source.seed, str(scheduler)))),
        )
        for scheduler in schedulers
        for source, digest in zip(sources, jobs, strict=True)
    ]  # fmt: skip


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def make(task: Task, progress: Callable[[int], None] = lambda finished: None) -> None:
    """Make one run, and write its files; the summary comes last.

    Raises:
        Conflict: a file cannot be written.
    """
    began = time.perf_counter()
    rules = task.setting.rules
    servers_at = task.setting.cluster.at(rules.round_s)
    outcome = loop.run(task.source.jobs, task.setting.profiles, servers_at, task.scheduler, rules, progress)
    seconds = time.perf_counter() - began
    write(task.file("jobs"), results.job_lines(task.prefix, outcome, rules))
    write(task.file("rounds"), results.round_lines(task.prefix, outcome))
    head = {"scheduler": str(task.scheduler), "rate": task.source.rate, "seed": task.source.seed}
    found = {**head, **results.summary(outcome, rules), "refused": task.source.refused}
    found |= {"seconds": seconds, "cdf": results.cdf(outcome, rules), "over_time": results.over_time(outcome)}
    write(task.file("summary"), [json.dumps(found)])


def made(task: Task) -> dict[str, Any] | None:
    """Return the summary of a run that has been made; None if it has not."""
    try:
        found = json.loads(task.file("summary").read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def make_all(
    wanted: Sequence[Task],
    workers: int,
    begun: Callable[[Task], Callable[[int], None]],
    ended: Callable[[Task], None],
) -> None:
    """Make those of the wanted runs that have not been made.

    Args:
        wanted: the runs.
        workers: the number of processes.
        begun: called before each run that this process makes. It returns a function, which is then called after each
            round with the number of finished jobs.
        ended: called after each run.
    """
    try:
        wanted[0].folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Conflict(f"{wanted[0].folder} cannot be made: {error.strerror}; choose another --output") from error
    left = [task for task in wanted if made(task) is None]
    if workers == 1 or len(left) < 2:
        for task in left:
            make(task, begun(task))
            ended(task)
        return
    with processes.started(min(workers, len(left))) as pool:
        with processes.deaf_to_interrupts():
            running = {pool.submit(make, task): task for task in left}
        for future in as_completed(running):
            future.result()
            ended(running[future])


def gather(wanted: Sequence[Task], output: Path) -> list[Path]:
    """Put the rows of all runs into jobs.csv and rounds.csv.

    Raises:
        Conflict: a file cannot be written.
    """
    files = [output / "jobs.csv", output / "rounds.csv"]
    for path, header in zip(files, (results.JOBS_HEADER, results.ROUNDS_HEADER), strict=True):
        write(path, _rows(header, [task.file(path.stem) for task in wanted]))
    return files


def _rows(header: str, parts: Sequence[Path]) -> Iterator[str]:
    yield header
    for part in parts:
        with part.open(encoding="utf-8", newline="") as file:
            yield from file


def clear(output: Path) -> None:
    """Remove the files of the single runs."""
    shutil.rmtree(output / FOLDER, ignore_errors=True)
