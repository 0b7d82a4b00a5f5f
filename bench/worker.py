"""The process that runs a workload on command: `python -m orion.bench.worker KIND [OPTIONS as JSON]`.

It sets its workload up once, says so, and then does what lines of JSON on its standard input say. Replies are lines
of JSON on what was its standard output; everything else that a library prints goes to standard error. Times are
seconds of CLOCK_MONOTONIC, which all processes of a machine share, so two workers start at the same moment without
talking to each other.

    {"do": "serve", "begin": T, "arrivals": [...], "trace": [from, to]}   open loop, arrivals relative to begin
    {"do": "loop", "begin": T, "end": T, "trace": [from, to]}             closed loop

The worker ends with its standard input or with its parent, whichever is first.
"""

import ctypes
import gc
import json
import os
import signal
import sys
import time
from typing import IO, Any

from orion.bench.workload import Workload

PR_SET_PDEATHSIG = 1
PR_SET_TIMERSLACK = 29


def make_workload(kind: str, options: dict[str, Any]) -> Workload:
    """Set up a workload by name; imports only what that kind needs."""
    if kind.startswith("simulated-"):
        from orion.bench import loads_simulated

        return loads_simulated.KINDS[kind](**options)
    from orion.bench import loads_torch

    return loads_torch.KINDS[kind](**options)


def serve(workload: Workload, begin: float, arrivals: list[float], trace: list[float] | None) -> dict[str, Any]:
    """Answer each request in turn, none before it is due.

    Returns:
        starts, ends: seconds from begin of each request.
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
        ends: seconds from begin at which each step returned.
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


def _switch_trace(workload: Workload, now: float, window: list[float] | None) -> None:
    if window is not None:
        workload.trace.on = window[0] <= now < window[1]


def obey(workload: Workload, command: dict[str, Any]) -> dict[str, Any]:
    """Carry one command out and return its reply."""
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


def settle() -> None:
    """Keep this process's own noise out of what it measures, and its life within its parent's."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)  # wake at the arrival, not 50 us after it
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    gc.collect()
    gc.freeze()
    gc.disable()


def main(arguments: list[str]) -> int:
    """Set up, report, obey until the commands end."""
    replies: IO[str] = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    workload = make_workload(arguments[0], json.loads(arguments[1]) if len(arguments) > 1 else {})
    settle()
    print(
        json.dumps(
            {
                "ready": True,
                "gpu": workload.gpu,
                "unit": workload.unit,
                "amount": workload.amount,
                "details": workload.details,
            }
        ),
        file=replies,
    )
    for line in sys.stdin:
        print(json.dumps(obey(workload, json.loads(line))), file=replies)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
