"""Turns the options of `orion simulate cluster` into runs; reports each wrong value in one sentence."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orion.errors import Invalid, NotFound, Unreadable
from orion.simulation.cluster import clusters, profiles
from orion.simulation.cluster.fitting import fitting
from orion.simulation.cluster.generate import Recipe, check_split, generate, lines
from orion.simulation.cluster.jobs import Job
from orion.simulation.cluster.replay import at_begin, replay
from orion.simulation.cluster.rules import Rules
from orion.simulation.cluster.runs import Setting, Source
from orion.simulation.cluster.schedulers import Scheduler, parse
from orion.simulation.traces.entries import Skipped
from orion.simulation.whole_files import write

RESTART_COST_S = Rules.restart_cost_s
SEED = 42


@dataclass(frozen=True)
class Options:
    """The options as the user wrote them; see `orion simulate cluster --help`."""

    cluster: Path
    profiles: Path
    schedulers: str
    output: Path
    replay: Path | None
    generate: int | None
    rate: str | None
    seed: str | None
    split: str | None
    gpu_mix: str | None
    record: Path | None
    static: bool
    profile_set: str
    round_s: float
    restart_cost_s: float | None
    placement: str
    compatible: str | None
    window: str | None
    skip_bad: bool
    skip_unfit: bool


@dataclass(frozen=True)
class Asked:
    """What to run.

    Attributes:
        schedulers: the schedulers.
        sources: the jobs of each rate and seed.
        setting: what all runs have in common.
        output: the folder for results.
        skipped: the lines of the trace that gave no job.
        notes: sentences for people.
    """

    schedulers: Sequence[Scheduler]
    sources: Sequence[Source]
    setting: Setting
    output: Path
    skipped: Sequence[Skipped]
    notes: Sequence[str]


def read(options: Options) -> Asked:
    """Return the runs that the options ask for.

    Raises:
        OrionError: with a sentence.
    """
    rules = _rules(options)
    _check_source(options)
    schedulers = parse(options.schedulers, is_compatible=rules.is_compatible)
    cluster = clusters.read(options.cluster)
    if rules.is_compatible and cluster.is_shared:
        raise Unreadable(
            f"{options.cluster}: servers with hp do not exist with --compatible synergy: leave that option out"
        )
    found = profiles.read(options.profiles, options.profile_set)
    others = [gpu for gpu in cluster.gpu_models if gpu != found.gpu]
    if found.gpu and others:
        raise Unreadable(
            f"{options.profiles}: the profiles are of {found.gpu}, and {options.cluster} has {', '.join(others)}: "
            "measure profiles there"
        )
    setting = Setting(found.by_model, cluster, rules)
    sources, skipped = _sources(options, setting)
    return Asked(schedulers, sources, setting, options.output, skipped, found.notes)


def _rules(options: Options) -> Rules:
    if options.compatible not in (None, "synergy"):
        raise Invalid(f"--compatible cannot be {options.compatible!r}: it must be synergy")
    if options.placement not in ("scattered", "packed"):
        raise Invalid(f"--placement cannot be {options.placement!r}: it must be scattered or packed")
    is_compatible = options.compatible is not None
    cost_s = options.restart_cost_s
    if is_compatible and cost_s:
        raise Invalid("--restart-cost does not exist with --compatible synergy, where moves are free")
    cost_s = 0.0 if is_compatible else RESTART_COST_S if cost_s is None else cost_s
    if not (math.isfinite(options.round_s) and cost_s < options.round_s):
        raise Invalid(
            f"--restart-cost {cost_s:g} is not less than --round {options.round_s:g}: a job that moves in each round "
            "would never end"
        )
    return Rules(
        options.round_s, cost_s, options.static, is_compatible, options.placement == "packed", _window(options.window)
    )


def _window(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    first, colon, last = text.partition(":")
    try:
        found = int(first), int(last)
    except ValueError:
        found = 1, 0
    if not colon or found[0] > found[1]:
        raise Invalid(f"--window cannot be {text!r}: give the first and the last job, such as 4000:4999")
    return found


def _check_source(options: Options) -> None:
    if (options.replay is None) == (options.generate is None):
        raise Invalid("give either --replay FILE or --generate N")
    if options.generate is not None and options.rate is None:
        raise Invalid("--generate needs --rate, in jobs an hour")
    only_generated = {
        "--rate": options.rate,
        "--seed": options.seed,
        "--gpu-mix": options.gpu_mix,
        "--record": options.record,
    }
    given = [flag for flag, value in only_generated.items() if value is not None]
    if options.replay is not None and given:
        raise Invalid(f"{given[0]} needs --generate, and a trace has its own jobs: leave it out")


def _sources(options: Options, setting: Setting) -> tuple[list[Source], Sequence[Skipped]]:
    split = None if options.split is None else _split(options.split)
    if options.replay is not None:
        found = replay(options.replay, setting.profiles, split, skip_bad=options.skip_bad)
        jobs = at_begin(found.jobs) if options.static else found.jobs
        return [_source(options, setting, jobs)], found.skipped
    rates, seeds = _numbers("--rate", options.rate or ""), _seeds(str(SEED) if options.seed is None else options.seed)
    if options.record is not None and len(rates) * len(seeds) > 1:
        raise Invalid("--record takes the jobs of one rate and one seed: give one of each")
    sources = []
    for rate in rates:
        for seed in seeds:
            recipe = Recipe(
                options.generate or 0, rate, seed, split or Recipe.split, options.gpu_mix or "single", options.static
            )
            jobs = generate(recipe, setting.profiles)
            if options.record is not None:
                write(options.record, lines(jobs))
            sources.append(_source(options, setting, jobs, rate, seed))
    return sources, ()


def _source(
    options: Options, setting: Setting, jobs: Sequence[Job], rate: float | None = None, seed: int | None = None
) -> Source:
    found = fitting(jobs, setting.profiles, setting.cluster, skip_unfit=options.skip_unfit)
    if not any(setting.rules.counts(job.number) for job in found.jobs):
        why = (
            "no job fits the cluster" if setting.rules.window is None else "--window holds no job that fits the cluster"
        )
        raise NotFound(f"{why}: there is nothing to simulate")
    return Source(found.jobs, found.refused, rate, seed)


def _split(text: str) -> tuple[float, float, float]:
    parts = _numbers("--split", text)
    check_split(parts)
    return parts[0], parts[1], parts[2]


def _seeds(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise Invalid(f"--seed cannot be {text!r}: give whole numbers with commas between") from error


def _numbers(flag: str, text: str) -> list[float]:
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or not all(map(math.isfinite, found)):
        raise Invalid(f"{flag} cannot be {text!r}: give numbers with commas between")
    return found
