"""The file of a serving scenario, as users write it; reading.py makes values of it.

An example:

    gpus: [{name: g0, type: H200, memory: 141}]                         # GB, or an amount such as 80Gi
    seed: 1
    seconds: 60                                                         # for how long requests arrive
    services:
      - name: search
        objective: {latency: 50ms, quantile: 0.99}
        latency: [{batch: 1, smShare: 1, medianNs: 4000000}, {batch: 8, smShare: 1, medianNs: 11000000}]
        rate: 200
    plan: [{gpu: g0, services: [{name: search, batch: 8, maxDelay: 2ms}]}]
"""

from collections import Counter
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from orion.crds.durations import Duration
from orion.simulation.written import Gigabytes, SomeGigabytes, Written

Name = Annotated[str, Field(min_length=1, max_length=256)]
Rate = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Whole = Annotated[int, Field(ge=1, le=10**12)]


def _text(value: Any) -> Any:
    """Return a name that YAML read as a number as text."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


class Gpu(Written):
    """One GPU."""

    name: Name
    type: str = ""
    memory: SomeGigabytes | None = None
    """ GB; absent: not checked. """

    _name_text = field_validator("name", mode="before")(_text)


class Drop(Written):
    """Which requests are dropped when a batch is formed."""

    rule: Literal["none", "lazy", "eager"] = "none"
    ratio: Rate = 1.0


class Objective(Written):
    """A latency, or the times of tokens, that a quantile of the requests must keep."""

    latency: Duration | None = None
    time_to_first_token: Duration | None = None
    time_per_output_token: Duration | None = None
    quantile: Annotated[float, Field(gt=0, lt=1)] = 0.99

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        tokens = self.time_to_first_token is not None or self.time_per_output_token is not None
        if (self.latency is not None) == tokens:
            raise ValueError("give either latency, or timeToFirstToken and timePerOutputToken")
        return self


class Point(Written):
    """A measured time of one batch, as in a GPUProfile."""

    batch: Whole
    sm_share: Annotated[float, Field(gt=0, le=1)]
    median_ns: Positive
    p99_ns: Positive | None = None


class Engine(Written):
    """What an iteration of an engine takes, and what the engine holds."""

    step_base: Duration
    prefill_token: Duration
    decode_sequence: Duration
    context_token: Duration
    max_sequences: Whole
    tokens_per_step: Whole
    kv_tokens: Whole
    admission: Literal["reserve", "paged"] = "reserve"


class Spread(Written):
    """A distribution of lengths in tokens; a length is at least 1."""

    exponential: Positive | None = None
    """ The mean. """
    uniform: tuple[Whole, Whole] | None = None
    """ The smallest and the largest length. """
    lognormal: tuple[Positive, Positive] | None = None
    """ The median and the 99th percentile. """

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if sum(each is not None for each in (self.exponential, self.uniform, self.lognormal)) != 1:
            raise ValueError("give one of exponential: MEAN, uniform: [LEAST, MOST], lognormal: [MEDIAN, P99]")
        for pair in (self.uniform, self.lognormal):
            if pair is not None and pair[0] > pair[1]:
                raise ValueError("the first number must not be larger than the second")
        return self


class Lengths(Written):
    """The lengths of an engine's requests: from distributions, or drawn from the requests of a trace."""

    prompt: Whole | Spread | None = None
    output: Whole | Spread | None = None
    file: str | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        given = self.prompt is not None and self.output is not None
        if given == (self.file is not None) or (self.prompt is None) != (self.output is None):
            raise ValueError("give either prompt and output, or file")
        return self


class Arrivals(Written):
    """Arrivals from a file; or, beside a rate, the kind of the arrivals."""

    file: str | None = None
    process: Literal["poisson", "uniform"] | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if (self.file is None) == (self.process is None):
            raise ValueError("give either file, or process (poisson or uniform) beside a rate")
        return self


class Service(Written):
    """One service: its needs and its requests."""

    name: Name
    memory: Gigabytes = 0.0
    """ GB of each copy. """
    objective: Objective
    latency: Annotated[list[Point], Field(min_length=1)] | None = None
    max_delay: Duration = Duration("0s")
    """ How long the service's server waits for a batch to fill, where the planner `orion` decides the rest. """
    profile: str | None = None
    engine: Engine | None = None
    rate: Rate | None = None
    rates_file: str | None = None
    arrivals: Arrivals | None = None
    lengths: Lengths | None = None
    process: Name | None = None
    """ Services that name the same process run in it. So they can divide a GPU by green contexts. """

    _name_text = field_validator("name", mode="before")(_text)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if sum(each is not None for each in (self.latency, self.profile, self.engine)) != 1:
            raise ValueError("give one of latency, profile and engine")
        file = self.arrivals.file if self.arrivals is not None else None
        if sum(each is not None for each in (self.rate, self.rates_file, file)) != 1:
            raise ValueError("give one of rate, ratesFile and arrivals: {file: ..}")
        if self.engine is None and self.lengths is not None:
            raise ValueError("lengths are for services with an engine: leave them out")
        if self.engine is not None and file is None and self.lengths is None:
            raise ValueError("an engine's requests have lengths: give lengths, or arrivals: {file: ..} with tokens")
        if self.engine is None and self.objective.latency is None:
            raise ValueError("only a service with an engine gives tokens one by one: give objective: {latency: ..}")
        return self


class Assigned(Written):
    """One service on one part."""

    name: Name
    batch: Annotated[int, Field(ge=1, le=100_000)] = 1
    max_delay: Duration = Duration("0s")
    throughput: Positive | None = None
    """ Requests/s, the weight among several parts; absent: what the part can serve. """

    _name_text = field_validator("name", mode="before")(_text)


class Part(Written):
    """A part of a GPU, and the services on it."""

    gpu: Name
    way: Literal["exclusive", "turns", "part", "threads"] | None = None
    share: Annotated[float, Field(gt=0, le=100)] = 100.0
    """ Percent of the GPU's SMs; up to 1: a fraction, as smShare. """
    order: Literal["slices", "fifo", "edf"] = "fifo"
    services: Annotated[list[Assigned], Field(min_length=1)]

    _gpu_text = field_validator("gpu", mode="before")(_text)


class Running(Written):
    """A plan that runs now."""

    plan: Annotated[list[Part], Field(min_length=1)]


class BestEffort(Written):
    """Work that the planner `orion` puts beneath the services of one GPU."""

    name: Name
    memory: Gigabytes = 0.0
    slowdown: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 1.0
    """ How many times longer its kernels take beneath services than alone. """

    _name_text = field_validator("name", mode="before")(_text)


class Slices(Written):
    """How a GPU alternates between processes, for parts with the order `slices`."""

    slice: Duration = Duration("2ms")
    """ How long one process has the GPU while another one waits. """
    change: Duration = Duration("0s")
    """ For how long no process has the GPU when it goes to another process. """

    @model_validator(mode="after")
    def _is_positive(self) -> Self:
        if not self.slice.exact_nanoseconds > 0:
            raise ValueError("slice must be above 0")
        return self


class Scenario(Written):
    """The whole file."""

    gpus: Annotated[list[Gpu], Field(min_length=1, max_length=100_000)]
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    seconds: Positive | None = None
    drop: Drop = Drop()
    services: Annotated[list[Service], Field(min_length=1)]
    slowdowns: dict[Name, dict[Name, Annotated[float, Field(ge=1, allow_inf_nan=False)]]] = Field(default_factory=dict)
    """ How many times longer a service's batches take beside another service on another part of the GPU. """
    slices: Slices = Slices()
    best_effort: list[BestEffort] = Field(default_factory=list)
    plan: Annotated[list[Part], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _has_an_end(self) -> Self:
        if self.plan is not None and self.best_effort:
            raise ValueError("bestEffort is for a planner, and this scenario has a plan: leave out one of them")
        workloads = [each.name for each in self.services] + [each.name for each in self.best_effort]
        for names in (workloads, [each.name for each in self.gpus]):
            name, count = Counter(names).most_common(1)[0]
            if count > 1:
                raise ValueError(f"the name {name!r} is there twice")
        if self.seconds is None and any(each.arrivals is None or each.arrivals.file is None for each in self.services):
            raise ValueError("give seconds: for how long requests arrive")
        return self
