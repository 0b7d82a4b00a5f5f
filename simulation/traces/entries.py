"""The entries of a trace: jobs, requests, and lines that were skipped."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JobEntry:
    """One training job.

    Attributes:
        line: the number of the line on which the job begins, counted from 1.
        name: unique in the file.
        arrival_s: when it was submitted, on the trace's own clock.
        gpus: the number of GPUs that it used; a fraction is a part of one GPU.
        duration_s: how long it ran; None if the trace gives iterations instead.
        model: what it trains; empty if the trace does not say.
        iterations: the number of iterations of the model; None if the trace gives a duration instead.
        quality: the quality of service in the trace's own words, such as LS or BE; empty if the trace does not say.
    """

    line: int
    name: str
    arrival_s: float
    gpus: float
    duration_s: float | None = None
    model: str = ""
    iterations: int | None = None
    quality: str = ""


@dataclass(frozen=True, slots=True)
class RequestEntry:
    """One request to a language model; times in seconds on the trace's own clock, lengths in tokens."""

    line: int
    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    model: str = ""


Entry = JobEntry | RequestEntry


@dataclass(frozen=True, slots=True)
class Skipped:
    """A line that gave no entry.

    Attributes:
        line: the number of the line, counted from 1.
        reason: why the line was skipped, as a clause for people.
        is_bad: whether the line breaks the form; False if the form's rule leaves the line out.
    """

    line: int
    reason: str
    is_bad: bool


OnSkip = Callable[[Skipped], None]
