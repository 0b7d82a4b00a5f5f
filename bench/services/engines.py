"""The engine's constants, its rate with a backlog, and its requests at three loads."""

import random
import statistics
import zlib
from typing import TYPE_CHECKING, Any

from orion.bench.arrivals import poisson_arrivals
from orion.bench.samples import percentile
from orion.bench.services.processes import LEAD, Post, Processes
from orion.bench.services.profile import PATIENCE
from orion.bench.services.scenario import Engine, Scenario

if TYPE_CHECKING:
    from orion.bench.services.controller import Output

REPEAT = 30
BACKLOG_SECONDS = 60.0
OVERRUN = 1.5
ITERATIONS_SECONDS = 30.0


def measure(wanted: Scenario, processes: Processes, output: "Output") -> None:
    """Make the engine's runs that are missing."""
    settings, post = wanted.engine, Post("engine")
    processes.prepare([post])
    output.make("engine/iterations", ITERATIONS_SECONDS / 3, lambda: _iterations(settings, processes, post))
    everyone = _requests(wanted, "backlog", [0.0] * settings.backlog)
    backlog = output.make(
        "engine/backlog", BACKLOG_SECONDS / 4, lambda: _serve(processes, post, everyone, BACKLOG_SECONDS)
    )
    if backlog is None:
        return
    capacity = len(backlog["served"]) / (max(backlog["end_us"]) / 1e6)
    for load in settings.loads:
        rate = float(f"{load * capacity:.3g}")
        seed = zlib.crc32(f"{wanted.seed} engine {load:g}".encode())
        arrivals = [round(time, 6) for time in poisson_arrivals(rate, settings.seconds, seed)]
        requests = _requests(wanted, f"{load:g}", arrivals)

        def serve(requests: list[list[float]] = requests, load: float = load, rate: float = rate) -> Any:
            found, words = _serve(processes, post, requests, OVERRUN * settings.seconds)
            return {"load": load, "rate": rate, **found}, f"{rate:g}/s {words}"

        output.make(f"engine/load-{load:g}", LEAD + 1.15 * settings.seconds, serve)


def points(settings: Engine) -> list[tuple[int, int, int]]:
    """Return the iterations to time: tokens of prompts, sequences that decode, their position."""
    most, tokens = settings.max_sequences, settings.tokens_per_step
    sequences = sorted({0, 1, 2, 4, 8, 12, 16, most} & set(range(most + 1)))
    chunks = sorted({0, *(tokens * part // 8 for part in range(1, 9))})
    low, high = settings.prompt[0], settings.prompt[1] + settings.output[1] - REPEAT - 10
    return [
        (min(chunk, tokens - count), count, position)
        for chunk in chunks
        for count in sequences
        for position in ((low, high) if count and chunk == 0 else (low,))
        if chunk + count
    ]


def _iterations(settings: Engine, processes: Processes, post: Post) -> tuple[dict[str, Any], str]:
    wanted = points(settings)
    command = {"do": "iterations", "points": wanted, "repeat": REPEAT}
    times = processes.command([post], [command], ITERATIONS_SECONDS + PATIENCE)[0]["times"]
    medians = [statistics.median(each) / 1e3 for each in times]
    words = f"{min(medians):.2f} to {max(medians):.2f} ms"
    about = {"gpu": processes.about(post).get("gpu"), "points": [list(point) for point in wanted]}
    return {**about, "times_us": times}, words


def _requests(wanted: Scenario, what: str, arrivals: list[float]) -> list[list[float]]:
    draw = random.Random(f"{wanted.seed} {what}")
    settings = wanted.engine
    return [[time, draw.randint(*settings.prompt), draw.randint(*settings.output)] for time in arrivals]


def _serve(processes: Processes, post: Post, requests: list[list[float]], until: float) -> tuple[dict[str, Any], str]:
    processes.start([post])
    command = {"do": "engine", "until": until, "requests": requests}
    reply = processes.command([post], [command], until + PATIENCE)[0]
    served = reply["served"]
    firsts = [first / 1e3 - requests[each][0] * 1e3 for each, first in zip(served, reply["first"], strict=True)]
    steps = [
        (end - first) / 1e3 / (requests[each][2] - 1)
        for each, first, end in zip(served, reply["first"], reply["end"], strict=True)
        if requests[each][2] > 1
    ]
    fields = {
        "requests": requests, "served": served, "admitted_us": reply["admitted"], "first_us": reply["first"],
        "end_us": reply["end"], "iterations": reply["iterations"],
    }  # fmt: skip
    words = f"{len(served)} of {len(requests)} served"
    for name, values in (("TTFT", firsts), ("TPOT", steps)):
        if values:
            words += f", {name} p50 {percentile(values, 50):.2f} p99 {percentile(values, 99):.2f} ms"
    return fields, words
