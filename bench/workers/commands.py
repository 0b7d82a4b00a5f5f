"""The commands of a worker: serve requests as they arrive, or run steps back to back.

Times are seconds of CLOCK_MONOTONIC. All processes of a machine share this clock, so workers start at the same moment
without messages to each other.

    {"do": "serve", "begin": T, "arrivals": [...], "trace": [from, to]}   open loop; arrivals are relative to begin
    {"do": "loop", "begin": T, "end": T, "trace": [from, to]}             closed loop
"""

import time
from typing import Any

from orion.bench.workload import Workload


def obey(workload: Workload, command: dict[str, Any]) -> dict[str, Any]:
    """Execute one command and return its reply.

    Args:
        workload: The workload, which the calling thread set up.
        command: A command as in this module's docstring; without `trace`, no spans are recorded.

    Returns:
        The reply of `serve` or `loop`. With `trace` the reply has `spans`: the times at which the GPU worked for this
        workload, in seconds from begin.

    Raises:
        ValueError: The command is unknown.
    """
    begin, trace = command["begin"], command.get("trace")
    if trace is not None:
        workload.trace.anchor(workload.finish)
    if command["do"] == "serve":
        reply = serve(workload, begin, command["arrivals"], trace)
    elif command["do"] == "loop":
        reply = loop(workload, begin, command["end"], trace)
    else:
        raise ValueError(f"unknown command {command['do']!r}")
    workload.trace.on = False
    if trace is not None:
        reply["spans"] = [
            (start - begin, end - begin)
            for start, end in workload.trace.spans()
            if end - begin > trace[0] and start - begin < trace[1]
        ]
    return reply


def serve(workload: Workload, begin: float, arrivals: list[float], trace: list[float] | None) -> dict[str, Any]:
    """Serve the requests one after another, each not before its arrival.

    Returns:
        starts, ends: when each request started and ended, in seconds from begin.
    """
    starts: list[float] = []
    ends: list[float] = []
    clock = time.monotonic
    with workload.throughout():
        for arrival in arrivals:
            wait = begin + arrival - clock()
            if wait > 0:
                time.sleep(wait)
            start = clock() - begin
            _switch_trace(workload, start, trace)
            workload.step()
            starts.append(start)
            ends.append(clock() - begin)
    workload.finish()
    return {"starts": starts, "ends": ends}


def loop(workload: Workload, begin: float, end: float, trace: list[float] | None) -> dict[str, Any]:
    """Run steps back to back from begin to end.

    Returns:
        ends: when each step returned, in seconds from begin. If the workload waits for its steps, the step was
        complete then; if it queues steps, at most two steps were incomplete.
    """
    ends: list[float] = []
    clock = time.monotonic
    time.sleep(max(0.0, begin - clock()))
    with workload.throughout():
        while True:
            now = clock()
            if now >= end:
                break
            _switch_trace(workload, now - begin, trace)
            workload.step()
            ends.append(clock() - begin)
    workload.finish()
    return {"ends": ends}


def about(workload: Workload) -> dict[str, Any]:
    """Describe a workload that is ready, for the parent process and for the raw data."""
    return {
        "ready": True,
        "gpu": workload.gpu,
        "unit": workload.unit,
        "amount": workload.amount,
        "details": workload.details,
    }


def _switch_trace(workload: Workload, now: float, window: list[float] | None) -> None:
    if window is not None:
        workload.trace.on = window[0] <= now < window[1]
