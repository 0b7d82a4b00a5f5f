"""The scenarios of the serving simulator for measured runs, written as users write them, so anybody can repeat one.

A prediction uses constants of the GPU and of the services (measured.py) and the arrivals of the run that it predicts:
nothing else of that run. In parts, a neighbour slows a service down only while the neighbour serves a batch. The
simulator's factor holds at all times. So the factor in the scenario is the full slowdown, weighted by the part of the
time for which the neighbour is busy according to the simulator. It is found in rounds.
"""

import itertools
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orion.bench.services.measured import Measured
from orion.bench.services.scenario import shares_of

ROUNDS = 4
"""Rounds for the busy parts; after three of them the factors change by less than 0.5 %."""


@dataclass(frozen=True)
class Predicted:
    """The requests of one service: arrival, begin of the batch, first token and end, in seconds."""

    arrivals: Sequence[float]
    starts: Sequence[float]
    first_tokens: Sequence[float]
    ends: Sequence[float]

    def busy(self, seconds: float) -> float:
        """Return for which part of the time the service serves a batch; at most 1."""
        batches = set(zip(self.starts, self.ends, strict=True))
        return min(1.0, sum(end - start for start, end in batches) / seconds)


Simulate = Callable[[Path], dict[str, Predicted]]
"""From a scenario file to the requests of each service."""


def simulate(path: Path) -> dict[str, Predicted]:
    """Simulate a scenario file, and return the requests of each service."""
    from orion.simulation.serving import reading, simulating

    setting = reading.read(path)
    assert setting.plan is not None
    return {
        found.service.name: Predicted(
            *((each / 1e9).tolist() for each in (found.requests.arrivals, found.starts, found.first_tokens, found.ends))
        )
        for found in simulating.simulate(setting, setting.plan).services
    }


def pair(measured: Measured, run: dict[str, Any], simulator: Simulate = simulate) -> dict[str, Predicted]:
    """Predict the requests of a run of a pair."""
    names, way = run["pair"], run["way"]
    full = [measured.slowdown(way, names, place) for place in (0, 1)]
    factors = [1.0, 1.0]
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(ROUNDS if shares_of(way) is not None else 1):
            found = _simulated(pair_scenario(measured, run, Path(folder), factors), Path(folder), simulator)
            busy = [found[name].busy(run["seconds"]) for name in names]
            factors = [1 + (slow - 1) * other for slow, other in zip(full, reversed(busy), strict=True)]
    return found


def engine(measured: Measured, run: dict[str, Any], simulator: Simulate = simulate) -> Predicted:
    """Predict the requests of a run of the engine."""
    with tempfile.TemporaryDirectory() as folder:
        return _simulated(engine_scenario(measured, run, Path(folder)), Path(folder), simulator)["engine"]


def _simulated(written: dict[str, Any], folder: Path, simulator: Simulate) -> dict[str, Predicted]:
    path = folder / "scenario.yaml"
    path.write_text(json.dumps(written))
    return simulator(path)


def pair_scenario(
    measured: Measured, run: dict[str, Any], folder: Path, factors: Sequence[float] = (1.0, 1.0)
) -> dict[str, Any]:
    """Return the scenario of a run of a pair; writes the files of arrivals into `folder`.

    Args:
        measured: the profile and the constants.
        run: the run; only the pair, the way and the arrivals are read.
        folder: for the files of arrivals.
        factors: how many times longer each service's batches take, in parts.
    """
    names, way = run["pair"], run["way"]
    shares, services, assigned = shares_of(way), [], []
    for number, each in enumerate(run["services"]):
        name, wanted = each["service"], measured.wanted.services[each["service"]]
        instants = itertools.accumulate(each["gaps_us"])
        file = folder / f"{name}.csv"
        file.write_text("arrival_s\n" + "".join(f"{instant / 1e6:.6f}\n" for instant in instants))
        services.append({
            "name": name, "objective": {"latency": f"{wanted.objective_ms:g}ms", "quantile": 0.99},
            "latency": points(measured, name, None if shares is None else shares[number], way != "slices"),
            "arrivals": {"file": str(file)},
        })  # fmt: skip
        assigned.append({"name": name, "batch": wanted.batch, "maxDelay": f"{wanted.max_delay_ms:g}ms"})
    written: dict[str, Any] = {"gpus": [{"name": "g0"}], "services": services}
    if shares is None:
        written["plan"] = [{"gpu": "g0", "way": "turns", "share": 100, "order": way, "services": assigned}]
        if way == "slices":
            found = measured.slices
            written["slices"] = {"slice": f"{found.slice_ms:.4f}ms", "change": f"{found.change_ms:.4f}ms"}
        return written
    written["plan"] = [
        {"gpu": "g0", "way": "part", "share": share, "order": "fifo", "services": [each]}
        for share, each in zip(shares, assigned, strict=True)
    ]
    written["slowdowns"] = {names[place]: {names[1 - place]: round(factors[place], 4)} for place in (0, 1)}
    return written


def points(measured: Measured, service: str, share: int | None, spaced: bool = True) -> list[dict[str, Any]]:
    """Return the times of a service on a share as a scenario has them; share None: a process without MPS.

    A batch after a gap takes a little longer, because the GPU waits for the first launch. In slices that wait passes
    while the other process has the GPU, so there the times back to back hold.
    """
    return [
        {"batch": batch, "smShare": 1 if share is None else share / 100, "medianNs": round(p50 * 1e6),
         "p99Ns": round(p99 * 1e6)}
        for batch, (p50, p99) in measured.times_ms(service, share, spaced).items()
    ]  # fmt: skip


def engine_scenario(measured: Measured, run: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the scenario of a run of the engine; writes the file of arrivals into `folder`."""
    settings = measured.wanted.engine
    rows = "".join(f"{arrival:.6f},{prompt},{output}\n" for arrival, prompt, output in run["requests"])
    file = folder / "engine.csv"
    file.write_text("arrival_s,prompt_tokens,output_tokens\n" + rows)
    constants = {name: f"{each:.4f}us" for name, each in measured.engine_us.items()}
    limits = {
        "maxSequences": settings.max_sequences, "tokensPerStep": settings.tokens_per_step,
        "kvTokens": settings.kv_tokens, "admission": "reserve",
    }  # fmt: skip
    return {
        "gpus": [{"name": "g0"}],
        "services": [{
            "name": "engine", "objective": {"timeToFirstToken": "1s", "timePerOutputToken": "100ms"},
            "engine": {**constants, **limits}, "arrivals": {"file": str(file)},
        }],
        "plan": [{"gpu": "g0", "share": 100, "services": [{"name": "engine"}]}],
    }  # fmt: skip
