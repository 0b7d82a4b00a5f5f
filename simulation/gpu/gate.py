"""Predicts hp beside be on one GPU in time-slicing, where a gate stops be while hp is busy.

The model replays the requests of hp alone: their arrivals, their service times, and the server's delays.

* A busy period begins with a request that finds hp idle and its linger over. The request waits for the rest of be's
  work on the GPU, and for a switch. Requests behind it wait only for each other.
* After a busy period pass the linger and a switch. Then be works until hp's next head comes, and while the head waits.
* be's kernels of one length follow each other from the moment in which be begins, so the rest of a kernel follows from
  the times. For other work the rest is drawn from the measured quantiles, evenly and without chance.
* The clock (clock.py) says how fast each side works.
* hp does not wait for a kernel that is longer than a time slice: hp and the kernel alternate slices until it ends.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from orion.simulation.gpu.clock import Clock
from orion.simulation.gpu.costs import Costs

Samples = NDArray[np.float64]
GOLDEN = (math.sqrt(5) - 1) / 2  # multiples of it fill the range from 0 to 1 evenly, in any length of the sequence
LONGEST_DELAY_MS = 0.2  # of the server; a longer one is a hiccup of that run


@dataclass(frozen=True)
class HighPriority:
    """hp alone: its requests, and what they do to the GPU."""

    arrivals_ms: Samples
    starts_ms: Samples
    ends_ms: Samples
    power_w: float
    sensitivity: float
    """See `costs.Work.clock_sensitivity`."""


@dataclass(frozen=True)
class BestEffort:
    """be alone: how it works, and what it does to the GPU."""

    throttled: float
    """Speed at full clock, divided by the speed that be keeps up alone; 1: alone it stays at full clock."""
    power_w: float
    """Power at full clock."""
    kernel_ms: float | None = None
    """Length of each kernel at full clock; None: kernels differ."""
    rest_ms: Sequence[tuple[float, float]] = ()
    """Where kernels differ: quantiles of the time that work on the GPU still takes, as (rank from 0 to 1, ms)."""
    ends_by_time: bool = False
    """Each kernel ends after a time, also while hp has the GPU."""
    clients: int = 1
    idle: float = 0.0
    """The part of its time alone in which be waits for input and leaves the GPU idle."""

    def throughput(self, share: float) -> float:
        """Return be's throughput over be's throughput alone, if be gets a share of the GPU's time while it computes."""
        if share <= 0:
            return 0.0
        return 1 / ((1 - self.idle) / (share * self.throttled) + self.idle)


@dataclass(frozen=True)
class Prediction:
    """What both sides get."""

    be: float
    """be's throughput in the window, divided by be's throughput alone."""
    latencies_ms: Samples
    """From arrival to end, of each request."""


def predict(hp: HighPriority, be: BestEffort, costs: Costs, window_ms: tuple[float, float]) -> Prediction:
    """Replay hp's requests beside be.

    Args:
        hp: hp alone, with at least one request.
        be: be alone.
        costs: Constants of the GPU.
        window_ms: Begin and end of the time in which be's throughput counts.
    """
    replay = _Replay(be, hp, costs)
    before = np.concatenate(([-math.inf], hp.ends_ms[:-1]))
    delays = np.clip(hp.starts_ms - np.maximum(hp.arrivals_ms, before), 0.0, LONGEST_DELAY_MS)
    services = hp.ends_ms - hp.starts_ms
    ends = [
        replay.request(*each) for each in zip(hp.arrivals_ms.tolist(), delays.tolist(), services.tolist(), strict=True)
    ]
    replay.finish(window_ms[1])
    low, high = np.interp(window_ms, replay.times, replay.done)
    share = float(high - low) / (window_ms[1] - window_ms[0])
    return Prediction(be.throughput(share), np.asarray(ends) - hp.arrivals_ms)


def predict_stalls(iterations_ms: Samples, stall_ms: float, be: BestEffort, costs: Costs) -> Prediction:
    """Predict an hp that trains and waits for input once in each iteration, beside be.

    Args:
        iterations_ms: Iterations of hp alone.
        stall_ms: How long an iteration waits for input.
        be: be alone.
        costs: Constants of the GPU.
    """
    ranks, values = zip(*(be.rest_ms or ((0.0, 0.0), (1.0, be.kernel_ms or 0.0))), strict=True)
    rest = float(np.interp((np.arange(1000) + 0.5) / 1000, ranks, values).mean())
    late = costs.to_hp_ms.value + rest
    free = max(0.0, stall_ms + rest - costs.linger_ms.value - costs.to_be_ms.value)
    slower = iterations_ms + late
    return Prediction(be.throughput(free / float(slower.mean())), slower)


class _Replay:
    """The state of the GPU while requests come one after the other; times in ms."""

    def __init__(self, be: BestEffort, hp: HighPriority, costs: Costs) -> None:
        limit = costs.power.limit_w.value
        self._be, self._costs = be, costs
        self._clock = Clock(costs.power)
        turn = costs.slice_ms.value + costs.slice_switch_ms.value
        self._working = costs.slice_ms.value / turn if be.clients > 1 else 1.0
        """The part of be's time without switches between be clients."""
        self._be_power = self._working * be.power_w / limit + (1 - self._working) * self._clock.idle
        self._hp_power, self._sensitivity = hp.power_w / limit, hp.sensitivity
        self._free, self._be_begin, self._kernel_end = -math.inf, 0.0, -math.inf
        self._heads = 0
        self.times, self.done = [0.0], [0.0]
        """be's work so far, at some times: between two of them be works evenly, or not at all."""

    def request(self, arrival: float, delay: float, service: float) -> float:
        """Serve a request; return its end."""
        if arrival > self._free + self._costs.linger_ms.value:
            begin = self._head(arrival + delay)
        else:
            begin = self._after_slice(max(arrival, self._free) + delay)
            self._clock.rest(begin - self._free)
        self._free = self._served(begin, service)
        return self._free

    def finish(self, until: float) -> None:
        """Let be work after the last request, until a time."""
        self._pause()
        self._work_until(max(until, self._be_begin))

    def _head(self, at: float) -> float:
        """Let be work until hp comes at a time, and through the rest of its work; return when hp has the GPU."""
        if at < self._kernel_end:  # a long kernel from before hp's last busy period
            return self._after_slice(at + self._costs.to_hp_ms.value)
        self._pause()
        self._work_until(max(at, self._be_begin))
        rest = self._rest()
        begin = max(at, self._be_begin)
        self._kernel_end = begin + rest
        if self._is_long:
            self._credit(self._kernel_end, rest * self._working)
        else:
            self._work_until(self._kernel_end)
            begin = self._kernel_end
        self._clock.rest(self._costs.to_hp_ms.value)
        return begin + self._costs.to_hp_ms.value

    def _after_slice(self, at: float) -> float:
        """Return when hp has the GPU at the earliest: if hp was idle for a moment, a long kernel got a slice."""
        if self._free >= self._kernel_end:
            return at
        slice_ms = min(self._costs.slice_ms.value, self._kernel_end - self._free)
        return max(at, self._free + slice_ms + 2 * self._costs.slice_switch_ms.value)

    def _pause(self) -> None:
        """Pass the linger and the switch after a busy period."""
        if self._free == -math.inf:
            return
        pause = self._costs.linger_ms.value + self._costs.to_be_ms.value
        self._clock.rest(pause)
        self._be_begin = max(self._free + pause, self._kernel_end)
        self._credit(self._be_begin, 0.0)

    def _work_until(self, end: float) -> None:
        self._credit(end, self._clock.run(end - self.times[-1], self._be_power) * self._working)

    def _credit(self, time: float, work: float) -> None:
        self.times.append(max(time, self.times[-1]))
        self.done.append(self.done[-1] + work)

    def _rest(self) -> float:
        """Return how long be's work on the GPU still takes."""
        self._heads += 1
        if self._be.kernel_ms is None:
            ranks, values = zip(*self._be.rest_ms, strict=True)
            return float(np.interp(self._heads * GOLDEN % 1, ranks, values)) / self._clock.speed
        kernels = self._since_begin() / self._be.kernel_ms
        left = math.floor(kernels) + 1 - kernels
        return left * self._be.kernel_ms / self._clock.speed / self._working

    def _since_begin(self) -> float:
        """Return be's work, at full speed, since be last began."""
        began = len(self.times) - 1
        while began > 0 and self.times[began] > self._be_begin:
            began -= 1
        return self.done[-1] - self.done[began]

    @property
    def _is_long(self) -> bool:
        kernel = self._be.kernel_ms
        return kernel is not None and kernel > self._costs.slice_ms.value

    def _served(self, begin: float, service: float) -> float:
        """Serve one request; alternate with a long kernel until the kernel ends."""
        turn, switch = self._costs.slice_ms.value, self._costs.slice_switch_ms.value
        at = begin
        while self._is_long and at + turn < self._kernel_end and service > turn:
            at += turn
            service -= turn
            lost = min(turn, self._kernel_end - at) + 2 * switch
            if not self._be.ends_by_time:
                self._kernel_end += turn + 2 * switch
            at += lost
        return at + self._clock.finish(service, self._hp_power, self._sensitivity)
