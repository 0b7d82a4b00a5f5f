"""The GPU time that processes really had, by the simulated GPU's own record."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.hook.harness import Machine
from tests.hook.scripted_client import Client, eventually

IDLE_AT_MOST = 0.6
""" Clients that always work use more than this part of the time, also on two busy cores. """


@dataclass(frozen=True)
class Timeline:
    """The times at which a process had the simulated GPU, in nanoseconds of CLOCK_MONOTONIC.

    Args:
        path: the file that ORION_SIM_TRACE names for the process.
        process_id: the process, if others write into the same file.
    """

    path: Path
    process_id: int | None = None

    def spans(self) -> Iterator[tuple[int, int]]:
        """Yield begin and end of each piece of work so far; a line that is half written does not count."""
        text = self.path.read_text() if self.path.exists() else ""
        for line in text.rpartition("\n")[0].splitlines():
            process_id, begin, end = line.split(maxsplit=3)[:3]
            if self.process_id in (None, int(process_id)):
                yield int(begin), int(end)

    def seconds(self, began: int, ended: int) -> float:
        """Return how long the process had the GPU between two times."""
        return sum(max(0, min(end, ended) - max(begin, began)) for begin, end in self.spans()) / 1e9

    def reaches(self, when: int) -> bool:
        """Return whether the process has had the GPU after ``when``, so that its record until then is complete."""
        return any(end > when for _, end in self.spans())

    def longest_wait(self, began: int, ended: int) -> float:
        """Return the longest time without the GPU between two times, in seconds."""
        inside = [(begin, end) for begin, end in self.spans() if end > began and begin < ended]
        ends = [began, *(end for _, end in inside)]
        begins = [*(begin for begin, _ in inside), ended]
        return max(begin - end for end, begin in zip(ends, begins, strict=True)) / 1e9


def start_traced(machine: Machine, slot: str) -> tuple[Client, Timeline]:
    """Start a client in a slot; return it with its timeline. It has joined when this function returns."""
    path = machine.folder / f"trace-{slot}-{machine.next_number()}"
    client = machine.start_in(machine.client_root(slot), ORION_SIM_TRACE=str(path))
    client.must("init 0")
    machine.until_joined(client)
    return client, Timeline(path)


def shares_in(timelines: Mapping[str, Timeline], began: int, ended: int) -> dict[str, float]:
    """Return the part of the time between two times in which each process had the GPU. All must still work."""
    for name, each in timelines.items():
        eventually(lambda each=each: each.reaches(ended), f"{name} works on")  # type: ignore[misc]
    return {name: each.seconds(began, ended) / ((ended - began) / 1e9) for name, each in timelines.items()}


def shares_of_the_next(seconds: float, timelines: Mapping[str, Timeline]) -> dict[str, float]:
    """Return the part of the time in which each process has the GPU in the next seconds."""
    began = time.monotonic_ns()
    time.sleep(seconds)  # the time over which shares are measured
    return shares_in(timelines, began, time.monotonic_ns())


def of_all(shares: Mapping[str, float]) -> dict[str, float]:
    """Return each share as a part of what all had. A busy machine gives the GPU work late, to all alike."""
    whole = sum(shares.values())
    assert whole > IDLE_AT_MOST, f"the GPU was idle for too long: {dict(shares)}"
    return {name: share / whole for name, share in shares.items()}
