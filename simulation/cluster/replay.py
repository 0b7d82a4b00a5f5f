"""Makes the simulator's jobs from a trace.

A replay of Synergy names models and iterations. Its arrival times stay unchanged, because the rounds' start times
depend on them. The other traces give durations, which count as durations at the fair share. Jobs of these traces have
no model, so their speed does not depend on their CPUs and memory. If the caller gives a split, these jobs get models
as in the generator. Their arrivals count from the first job, and their numbers follow the arrivals. A job with a part
of a GPU gets one GPU.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orion.errors import Unreadable
from orion.planning.queues.demands import Profile
from orion.simulation.traces.entries import JobEntry, Skipped
from orion.simulation.traces.numbers import shown
from orion.simulation.traces.reading import open_trace

from .generate import STATIC_GAP_S, Models, check_profiles, check_split, iterations
from .jobs import Job


@dataclass(frozen=True)
class Replay:
    """A trace as jobs.

    Attributes:
        form: the trace's form.
        jobs: the jobs, in the order of the file; if the trace gives durations, in the order of arrival.
        lines: each job's line in the file.
        skipped: the lines that gave no job.
    """

    form: str
    jobs: Sequence[Job]
    lines: Sequence[int]
    skipped: Sequence[Skipped]


def replay(
    path: Path,
    profiles: Mapping[str, Profile],
    split: tuple[float, float, float] | None = None,
    *,
    skip_bad: bool = False,
) -> Replay:
    """Return the jobs of a trace.

    Args:
        path: a plain or gzip file, in any form that contains jobs.
        profiles: profiles by model.
        split: the parts of the generator's classes, from which jobs without models get models; None: they get none.
        skip_bad: whether to go on if a line breaks the form, has a model without a profile, or repeats an id.

    Raises:
        Unreadable: the file cannot be read, holds requests, has a bad line and `skip_bad` is not set, or has no job.
        Invalid: with a sentence; a model of the generator has no profile, or the split is not possible.
    """
    trace = open_trace(path)
    if trace.kind != "jobs":
        raise Unreadable(f"{path} holds {trace.kind} (form {trace.name}): replay a trace of training jobs")
    skipped: list[Skipped] = []

    def skip(found: Skipped) -> None:
        if found.is_bad and not skip_bad:
            raise Unreadable(f"{path}, line {found.line}: {found.reason}: fix the line, or use --skip-bad")
        skipped.append(found)

    entries = [entry for entry in trace.entries(skip) if isinstance(entry, JobEntry)]
    if trace.name == "synergy":
        entries = _known(entries, profiles, skip)
        jobs = [_job(entry) for entry in entries]
    else:
        entries.sort(key=lambda entry: entry.arrival_s)
        jobs = _without_models(entries) if split is None else _with_models(entries, profiles, split)
    if not jobs:
        counted = f"{len(skipped)} line{'s' * (len(skipped) != 1)} skipped"
        raise Unreadable(f"{path} holds no job that can run ({counted}): look at it with `orion trace show`")
    return Replay(trace.name, jobs, [entry.line for entry in entries], sorted(skipped, key=lambda each: each.line))


def at_begin(jobs: Sequence[Job]) -> list[Job]:
    """Return the jobs in the order of their arrivals, all of them within the first second: 1 ms apart, or less."""
    gap_s = min(STATIC_GAP_S, 0.999 / max(1, len(jobs)))
    ordered = sorted(jobs, key=lambda job: (job.arrival_s, job.number))
    return [job._replace(arrival_s=round(index * gap_s, 9)) for index, job in enumerate(ordered)]


def _known(
    entries: Sequence[JobEntry], profiles: Mapping[str, Profile], skip: Callable[[Skipped], None]
) -> list[JobEntry]:
    """Return the entries whose models have profiles."""
    models = ", ".join(sorted(profiles)) or "none"
    for entry in entries:
        if entry.model not in profiles:
            skip(
                Skipped(entry.line, f"the model {shown(entry.model)} has no profile (there are {models})", is_bad=True)
            )
    return [entry for entry in entries if entry.model in profiles]


def _job(entry: JobEntry) -> Job:
    return Job(int(entry.name), entry.model, entry.arrival_s, entry.iterations or 1, int(entry.gpus))


def _without_models(entries: Sequence[JobEntry]) -> list[Job]:
    """Return the jobs in the order of their arrivals. One iteration takes a second, and each job has at least one."""
    return [
        Job(
            number, "", entry.arrival_s - entries[0].arrival_s, max(1.0, entry.duration_s or 0.0), math.ceil(entry.gpus)
        )
        for number, entry in enumerate(entries)
    ]


def _with_models(
    entries: Sequence[JobEntry], profiles: Mapping[str, Profile], split: tuple[float, float, float]
) -> list[Job]:
    """Return the jobs that `_without_models` returns, but with models that the generator's rule chooses.

    Raises:
        Invalid: with a sentence.
    """
    check_split(split)
    check_profiles(profiles)
    models, found = Models(split), []
    for job in _without_models(entries):
        model = models.choose()
        found.append(job._replace(model=model, iterations=iterations(job.iterations, profiles[model])))
    return found
