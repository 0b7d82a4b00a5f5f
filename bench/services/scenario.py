"""The scenario file of `orion bench services`; an unknown field is refused by name before anything starts."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from orion.bench import scenario_files

Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
Share = Annotated[int, Field(ge=1, le=100)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Service(_Strict):
    """One service: its model, and how its server forms batches."""

    model: Literal["resnet50", "bert", "gpt-decode", "gpt-prefill"]
    length: Count = 128
    """Tokens of an input; not used by resnet50."""
    tokens: Count = 8
    """Tokens that gpt-decode generates for a request."""
    batch: Count
    """The most requests of a batch in the runs of pairs."""
    max_delay_ms: Positive
    objective_ms: Positive


class Profile(_Strict):
    """What the profile measures."""

    batches: list[Count]
    shares: list[Share]
    """Shares under MPS; a process without MPS is measured, too."""
    dense: list[Share] = []
    """Shares at which all batches up to a service's own are measured, as without MPS."""
    seconds: Positive = 0.25
    """The least time of a point."""
    samples: Count = 20
    """The fewest samples of a point."""
    gap_ms: Positive = 2.0
    """Mean of the random gaps between batches; a point is measured back to back, too."""
    beside_seconds: Positive = 1.0
    """Length of a closed loop of two services side by side."""


class Pairs(_Strict):
    """Pairs of services at a rate."""

    pairs: list[tuple[str, str]]
    loads: list[Positive]
    """Sum over both services of rate x time of a full batch / requests of it, on the whole GPU; half for each."""
    ways: list[str]
    """`slices`, `edf`, or `part-A-B` with the shares of the first and the second service."""
    more_ways: list[str] = []
    """Ways to measure after all others."""
    seconds: Positive = 8.0

    @property
    def all_ways(self) -> list[str]:
        """Return all ways, each once."""
        return list(dict.fromkeys([*self.ways, *self.more_ways]))


class Climb(_Strict):
    """The highest load at which each service misses at most 1 % of its requests."""

    pairs: list[tuple[str, str]]
    loads: list[Positive]
    seconds: Positive = 4.0


class Engine(_Strict):
    """The engine, and its requests."""

    max_sequences: Count = 24
    tokens_per_step: Count = 512
    chunk_multiple: Count = 64
    """The tokens of prompts in an iteration are padded to a multiple of this."""
    kv_tokens: Count = 20000
    prompt: tuple[Count, Count] = (512, 1024)
    """Fewest and most tokens of a prompt, uniform. A prompt has at least `tokens_per_step` tokens."""
    output: tuple[Count, Count] = (32, 128)
    loads: list[Positive] = [0.4, 0.6, 0.8]
    """Of the rate at which the engine serves a backlog."""
    seconds: Positive = 30.0
    backlog: Count = 150
    """Requests of the backlog."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        for name, (fewest, most) in (("prompt", self.prompt), ("output", self.output)):
            if fewest > most:
                raise ValueError(f"{name} is [{fewest}, {most}]; give the fewest tokens first")
        if self.prompt[0] < self.tokens_per_step:
            raise ValueError(
                "a prompt has to have at least tokens_per_step tokens, so that an iteration has two at most"
            )
        if self.tokens_per_step % self.chunk_multiple:
            raise ValueError("tokens_per_step has to be a multiple of chunk_multiple")
        if self.kv_tokens < self.prompt[1] + self.output[1]:
            raise ValueError("kv_tokens has to hold the longest request")
        return self


class Scenario(_Strict):
    """All that one command measures."""

    name: str
    seed: int = 1
    services: dict[str, Service]
    profile: Profile
    pairs: Pairs
    climb: Climb
    engine: Engine

    @model_validator(mode="after")
    def _known(self) -> Self:
        for pair in [*self.pairs.pairs, *self.climb.pairs]:
            for name in pair:
                if name not in self.services:
                    raise ValueError(f"there is no service {name}; there are {', '.join(self.services)}")
        for way in self.pairs.all_ways:
            shares_of(way)
        return self


def shares_of(way: str) -> tuple[int, int] | None:
    """Return the shares of a way `part-A-B`, or None for the ways without shares.

    Raises:
        ValueError: there is no such way.
    """
    if way in ("slices", "edf"):
        return None
    words = way.split("-")
    if len(words) == 3 and words[0] == "part" and all(word.isdecimal() and 0 < int(word) <= 100 for word in words[1:]):
        return int(words[1]), int(words[2])
    raise ValueError(f"there is no way {way!r}; there are slices, edf, and part-A-B with two shares in percent")


def read(path: Path) -> Scenario:
    """Read a scenario.

    Raises:
        Unreadable: the file cannot be read, is no YAML, or has a wrong field.
    """
    return scenario_files.read(
        path,
        Scenario,
        "a scenario of services as YAML",
        "is not a scenario of services: it has to have the fields name: and services:",
    )
