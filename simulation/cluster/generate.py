"""Makes training jobs as the generator of Synergy's published simulator does: the same seed gives the same jobs.

Durations: with probability 0.8, 60 s x 10^U(1.5, 3), else 60 s x 10^U(3, 4). The mean is 16.77 h. A duration is the
time that a job takes at its fair share. A job's number of iterations is the duration divided by the time of one
iteration of its model, cut to an integer. Gaps between arrivals: exponential, rounded up to whole seconds. GPUs: one
for each job, or 1, 2, 4 and 8 for 70, 10, 15 and 5 % of jobs. Models: the next job belongs to the class whose part of
all jobs is furthest below its target. Within a class, the next job has the next model of the class.

The random numbers come from Python's generator, which Synergy uses too. So each line of a recording can be compared
with Synergy's line. numpy's generator was refused, because its numbers differ.
Source: msr-fiddle/synergy (MIT), simulator/jobs and simulator/helpers.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random

from orion.errors import Invalid
from orion.planning.queues.demands import Profile

from .jobs import Job

CLASSES: tuple[tuple[str, ...], ...] = (
    ("alexnet", "res18", "res50", "mobilenet", "shufflenet"),
    ("gnmt", "transformer", "lstm"),
    ("m5", "deepspeech"),
)
""" Models by class: images, language, speech. """
MOST_JOBS = 10_000_000
LEAST_RATE_PER_H = 1e-6
""" A job in a hundred years. """
STATIC_GAP_S = 0.001
_MIXES = ("single", "multi")


@dataclass(frozen=True)
class Recipe:
    """What to generate.

    Attributes:
        count: number of jobs.
        rate_per_h: mean number of arrivals an hour.
        seed: the seed of the random numbers.
        split: the parts of the classes images, language and speech; only the ratio of the parts counts.
        gpu_mix: `single`: every job has one GPU; `multi`: 1, 2, 4 or 8.
        is_static: whether all jobs arrive at the start, 1 ms apart. The jobs are otherwise the same.

    Raises:
        Invalid: with a sentence, if a value is not possible.
    """

    count: int
    rate_per_h: float
    seed: int = 42
    split: tuple[float, float, float] = (20, 70, 10)
    gpu_mix: str = "single"
    is_static: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MOST_JOBS:
            raise Invalid(f"{self.count} jobs cannot be generated: ask for 1 to {MOST_JOBS}")
        if not (math.isfinite(self.rate_per_h) and self.rate_per_h >= LEAST_RATE_PER_H):
            raise Invalid(f"the rate {self.rate_per_h} is not possible: give jobs an hour, {LEAST_RATE_PER_H} or more")
        check_split(self.split)
        if self.gpu_mix not in _MIXES:
            raise Invalid(f"the GPU mix {self.gpu_mix!r} is unknown: choose {' or '.join(_MIXES)}")


def check_split(split: Sequence[float]) -> None:
    """Check parts of the three classes.

    Raises:
        Invalid: with a sentence.
    """
    if len(split) != len(CLASSES) or not all(math.isfinite(part) and part >= 0 for part in split) or sum(split) <= 0:
        raise Invalid(
            f"the split {','.join(f'{part:g}' for part in split)} is not possible: "
            "give three parts (images, language, speech) that are 0 or more, such as 20,70,10"
        )


class Models:
    """Chooses the model of one job after the other."""

    def __init__(self, split: Sequence[float]) -> None:
        self._targets = [part / sum(split) for part in split]
        self._jobs = [0] * len(CLASSES)
        self._next = [0] * len(CLASSES)

    def choose(self) -> str:
        """Return the next job's model. Of classes that are equally far below their targets, the first one is chosen."""
        total = sum(self._jobs)
        short = [
            target - jobs / total if total else 0.0 for target, jobs in zip(self._targets, self._jobs, strict=True)
        ]
        chosen = max(range(len(CLASSES)), key=short.__getitem__)
        model = CLASSES[chosen][self._next[chosen] % len(CLASSES[chosen])]
        self._next[chosen] += 1
        self._jobs[chosen] += 1
        return model


def generate(recipe: Recipe, profiles: Mapping[str, Profile]) -> list[Job]:
    """Return the jobs of a recipe, numbered from 0 in the order of their arrivals.

    Args:
        recipe: what to generate.
        profiles: profiles by model; every model of the classes must be there.

    Raises:
        Invalid: with a sentence, if a profile is missing.
    """
    check_profiles(profiles)
    return list(islice(_jobs(recipe, profiles), recipe.count))


def check_profiles(profiles: Mapping[str, Profile]) -> None:
    """Check that all models of the classes have a profile.

    Raises:
        Invalid: with a sentence.
    """
    missing = sorted(model for models in CLASSES for model in models if model not in profiles)
    if missing:
        raise Invalid(
            f"the generator makes jobs of {', '.join(missing)}, and the profiles lack these models "
            f"(they have {', '.join(sorted(profiles)) or 'none'}): add them, or replay a trace"
        )


def _jobs(recipe: Recipe, profiles: Mapping[str, Profile]) -> Iterator[Job]:
    """Yield jobs without an end.

    Synergy draws one job that its recordings do not contain. That job counts for the classes and for the time. After
    it, the random numbers start again from the seed, and the next job has the number 0. This function does the same.
    """
    random, models = Random(recipe.seed), Models(recipe.split)
    arrival_s = _gap_s(random, recipe.rate_per_h)
    models.choose()
    random.seed(recipe.seed)
    number = 0
    while True:
        arrival_s += _gap_s(random, recipe.rate_per_h)
        duration_s = _duration_s(random)
        gpus = _gpus(random) if recipe.gpu_mix == "multi" else 1
        random.randint(0, sum(map(len, CLASSES)) - 1)  # Synergy draws a model here and does not use it
        model = models.choose()
        arrives_s = round(number * STATIC_GAP_S, 3) if recipe.is_static else float(arrival_s)
        yield Job(number, model, arrives_s, iterations(duration_s, profiles[model]), gpus)
        number += 1


def iterations(duration_s: float, profile: Profile) -> int:
    """Return the number of iterations of a job that takes this long at its fair share; at least one."""
    return max(1, int(duration_s / profile.iteration_s))


def lines(jobs: Iterable[Job]) -> Iterator[str]:
    """Yield a recording, which Synergy and `--replay` read: job_id,model,arrival_s,iterations,gpus."""
    for job in jobs:
        yield f"{job.number},{job.model},{_short(job.arrival_s)},{_short(job.iterations)},{job.gpus}\n"


def _short(value: float) -> str:
    """Return a number without a decimal point if it is whole."""
    return str(int(value)) if value == int(value) else repr(value)


def _gap_s(random: Random, rate_per_h: float) -> int:
    return math.ceil(-math.log(1.0 - random.random()) / rate_per_h * 60 * 60)


def _duration_s(random: Random) -> float:
    if random.random() >= 0.8:
        return 60.0 * 10 ** random.uniform(3, 4)
    return 60.0 * 10 ** random.uniform(1.5, 3)


def _gpus(random: Random) -> int:
    drawn = random.uniform(0, 1)
    if drawn >= 0.95:
        return 8
    if drawn >= 0.8:
        return 4
    return 2 if drawn >= 0.7 else 1
