"""Two services at a rate, in each way of sharing the GPU; the arrivals are the same in all ways."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orion.bench import raw_data
from orion.bench.arrivals import poisson_arrivals
from orion.bench.samples import percentile
from orion.bench.services.processes import LEAD, Post, Processes
from orion.bench.services.profile import PATIENCE, side_by_side, time_of_batch
from orion.bench.services.scenario import Scenario

if TYPE_CHECKING:
    from orion.bench.services.controller import Output

OVERRUN = 1.5  # a run that cannot keep up ends at this multiple of its length
ALLOWED_MISSES = 0.01


@dataclass(frozen=True)
class Run:
    """One run."""

    pair: tuple[str, str]
    load: float
    way: str
    seconds: float

    @property
    def name(self) -> str:
        """Return the name of the run and its file."""
        return f"{self.pair[0]}-{self.pair[1]}-{self.load:g}-{self.way}"


def posts(ways: Sequence[str]) -> list[Post]:
    """Return the processes that these ways need."""
    return list(dict.fromkeys(post for way in ways for post in side_by_side(way)))


def measure(wanted: Scenario, processes: Processes, output: "Output") -> None:
    """Make the runs of pairs that are missing."""
    settings = wanted.pairs
    processes.prepare(posts(settings.all_ways))
    times = batch_times(wanted, processes, output)
    for ways in (settings.ways, settings.more_ways):
        for pair in settings.pairs:
            for load in settings.loads:
                for way in ways:
                    _make(Run(pair, load, way, settings.seconds), "pairs", wanted, times, processes, output)


def climb(wanted: Scenario, processes: Processes, output: "Output") -> None:
    """Raise the load of each pair in each way until a service misses more than 1 %."""
    processes.prepare(posts(wanted.pairs.ways))
    times = batch_times(wanted, processes, output)
    for pair in wanted.climb.pairs:
        for way in wanted.pairs.ways:
            for load in sorted(wanted.climb.loads):
                run = Run(pair, load, way, wanted.climb.seconds)
                found = _make(run, "climb", wanted, times, processes, output)
                if found is None or max(each["misses"] for each in found["services"]) > ALLOWED_MISSES:
                    break


def batch_times(wanted: Scenario, processes: Processes, output: "Output") -> dict[str, float]:
    """Return the seconds of each service's full batch alone; rates are relative to it. Kept in the output folder."""
    path = output.folder / "batch_times.json"
    if path.exists():
        kept: dict[str, float] = raw_data.read(path)
        return kept
    post, times = Post("batches"), {}
    processes.start([post])
    for name, service in wanted.services.items():
        command = {
            "service": name, "batch": service.batch, "gap": wanted.profile.gap_ms / 1e3,
            "seconds": wanted.profile.seconds, "samples": wanted.profile.samples, "seed": wanted.seed,
        }  # fmt: skip
        times[name] = percentile(time_of_batch(processes, post, command), 50) / 1e6
    raw_data.write(path, times)
    return times


def rate_of(wanted: Scenario, name: str, load: float, seconds_of_batch: float) -> float:
    """Return a service's requests/s, rounded to three digits: half of the load is its own."""
    return float(f"{load / 2 * wanted.services[name].batch / seconds_of_batch:.3g}")


def arrivals_of(wanted: Scenario, run: Run, name: str, rate: float) -> list[float]:
    """Return the arrivals of a service, the same in all ways, to a microsecond."""
    seed = zlib.crc32(f"{wanted.seed} {run.pair} {run.load:g} {name}".encode())
    return [round(time, 6) for time in poisson_arrivals(rate, run.seconds, seed)]


def _make(
    run: Run, part: str, wanted: Scenario, times: dict[str, float], processes: Processes, output: "Output"
) -> dict[str, Any] | None:
    expected = LEAD + run.seconds * 1.1
    return output.make(f"{part}/{run.name}", expected, lambda: _serve(run, wanted, times, processes))


def _serve(run: Run, wanted: Scenario, times: dict[str, float], processes: Processes) -> tuple[dict[str, Any], str]:
    places = side_by_side(run.way)
    processes.start(places)
    rates = {name: rate_of(wanted, name, run.load, times[name]) for name in run.pair}
    arrivals = {name: arrivals_of(wanted, run, name, rates[name]) for name in run.pair}
    queues = [_queue(wanted, name, arrivals[name]) for name in run.pair]
    until = OVERRUN * run.seconds
    grouped = [queues] if len(places) == 1 else [[queue] for queue in queues]
    commands = [{"do": "serve", "until": until, "queues": each} for each in grouped]
    replies = processes.command(places, commands, until + PATIENCE)
    services = []
    for number, name in enumerate(run.pair):
        reply, own = (replies[0], number) if len(places) == 1 else (replies[number], 0)
        services.append(_service(wanted, name, rates[name], arrivals[name], reply, own))
    fields = {
        "pair": list(run.pair), "load": run.load, "way": run.way, "seconds": run.seconds,
        "services": services,
    }  # fmt: skip
    words = "; ".join(
        f"{each['service']} {each['rate']:g}/s p50 {each['p50_ms']:.2f} p99 {each['p99_ms']:.2f} ms, "
        f"misses {each['misses']:.2%}" + f", {each['unserved']} not served" * bool(each["unserved"])
        for each in services
    )
    return fields, words


def _queue(wanted: Scenario, name: str, arrivals: list[float]) -> dict[str, Any]:
    service = wanted.services[name]
    return {
        "service": name, "batch": service.batch, "max_delay": service.max_delay_ms / 1e3,
        "objective": service.objective_ms / 1e3, "arrivals": arrivals,
    }  # fmt: skip


def _service(
    wanted: Scenario, name: str, rate: float, arrivals: list[float], reply: dict[str, Any], own: int
) -> dict[str, Any]:
    """Return the arrivals and batches of one service, and its latencies in short."""
    batches = [
        (start, end, size)
        for queue, start, end, size in zip(reply["queue"], reply["start"], reply["end"], reply["size"], strict=True)
        if queue == own
    ]
    ends = [end / 1e3 for _, end, size in batches for _ in range(size)]
    latencies = [end - arrival * 1e3 for end, arrival in zip(ends, arrivals, strict=False)]
    objective = wanted.services[name].objective_ms
    unserved = len(arrivals) - len(latencies)
    late = sum(latency > objective for latency in latencies) + unserved
    return {
        "service": name,
        "rate": rate,
        "objective_ms": objective,
        "gaps_us": _gaps([round(arrival * 1e6) for arrival in arrivals]),
        "batches_us": [list(batch) for batch in batches],
        "unserved": unserved,
        "misses": late / max(1, len(arrivals)),
        "p50_ms": percentile(latencies, 50) if latencies else 0.0,
        "p99_ms": percentile(latencies, 99) if latencies else 0.0,
    }


def _gaps(instants: list[int]) -> list[int]:
    """Return the first instant, then each one's distance from the one before; their sums are the instants."""
    return [later - earlier for earlier, later in zip([0, *instants], instants, strict=False)]
