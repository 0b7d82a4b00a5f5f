"""Latency by batch and share, and closed loops of two services side by side."""

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from orion.bench.services.processes import LEAD, Post, Processes
from orion.bench.services.scenario import Scenario, shares_of
from orion.bench.services.worker import MOST_SECONDS

if TYPE_CHECKING:
    from orion.bench.services.controller import Output

PATIENCE = 20.0  # seconds that a worker may take longer than its command says
POINT_SECONDS = 0.4


def sizes(wanted: Scenario) -> dict[str, list[int]]:
    """Return the sizes of batches of each service that a process prepares."""
    return {
        name: sorted({*wanted.profile.batches, *range(1, service.batch + 1)})
        for name, service in wanted.services.items()
    }


def posts(wanted: Scenario) -> list[Post]:
    """Return the processes of the profile: without MPS, then one for each share."""
    return [Post("batches"), *(Post("batches", share) for share in wanted.profile.shares)]


def measure(wanted: Scenario, processes: Processes, output: "Output") -> None:
    """Make the runs of the profile that are missing."""
    needed = [*posts(wanted), *(post for way in wanted.pairs.all_ways for post in side_by_side(way))]
    processes.prepare(needed)
    for post in posts(wanted):
        for name in wanted.services:
            _measure_service(wanted, processes, output, post, name)
    for way in wanted.pairs.all_ways:
        if way != "edf":
            for pair in wanted.pairs.pairs:
                _measure_beside(wanted, processes, output, way, pair)


def side_by_side(way: str) -> list[Post]:
    """Return the processes of the first and the second service; for `edf` one process has both."""
    shares = shares_of(way)
    if shares is None:
        return [Post("batches", None, number) for number in range(1 if way == "edf" else 2)]
    first, second = shares
    return [Post("batches", first), Post("batches", second, 1 if first == second else 0)]


def time_of_batch(processes: Processes, post: Post, command: dict[str, Any]) -> list[int]:
    """Return the microseconds of single batches."""
    reply = processes.command([post], [{"do": "profile", **command}], MOST_SECONDS + PATIENCE, lead=0.01)[0]
    times: list[int] = reply["times"]
    return times


def _measure_service(wanted: Scenario, processes: Processes, output: "Output", post: Post, name: str) -> None:
    settings = wanted.profile
    dense = post.share is None or post.share in settings.dense
    batches = sizes(wanted)[name] if dense else sorted(set(settings.batches))

    def points() -> tuple[dict[str, Any], str]:
        processes.start([post])
        found: list[dict[str, Any]] = []
        for batch in batches:
            for gap_ms in (0.0, settings.gap_ms):
                command = {
                    "service": name, "batch": batch, "gap": gap_ms / 1e3, "seconds": settings.seconds,
                    "samples": settings.samples, "seed": wanted.seed,
                }  # fmt: skip
                times = time_of_batch(processes, post, command)
                found.append({"batch": batch, "gap_ms": gap_ms, "times_us": times})
        spaced = [point for point in found if point["gap_ms"]]
        words = ", ".join(f"{each['batch']}: {statistics.median(each['times_us']) / 1e3:.2f}" for each in spaced)
        about = {"mode": post.mode, "share": post.share, "service": name, "gpu": processes.about(post).get("gpu")}
        return {**about, "points": found}, f"ms by batch {words}"

    output.make(f"profile/{post.name}-{name}", 2 * len(batches) * POINT_SECONDS, points)


def _measure_beside(wanted: Scenario, processes: Processes, output: "Output", way: str, pair: Sequence[str]) -> None:
    seconds, places = wanted.profile.beside_seconds, side_by_side(way)

    def loops() -> tuple[dict[str, Any], str]:
        processes.start(places)
        found = []
        for batches in ([wanted.services[name].batch for name in pair], [1, 1]):
            commands = [
                {"do": "loop", "end": seconds, "service": name, "batch": batch}
                for name, batch in zip(pair, batches, strict=True)
            ]
            replies = processes.command(places, commands, seconds + PATIENCE)
            found.append({"batches": batches, "ends_us": [reply["ends"] for reply in replies]})
        words = "; ".join(
            " and ".join(f"{len(ends) / seconds:.0f}" for ends in each["ends_us"]) + f" batches/s of {each['batches']}"
            for each in found
        )
        return {"way": way, "pair": list(pair), "seconds": seconds, "loops": found}, words

    output.make(f"beside/{way}-{pair[0]}-{pair[1]}", 2 * (seconds + LEAD), loops)
