"""Runs `orion operator` and records how long its event loop is busy without a pause: for `operator_scale`.

    python -m measurements.cluster.watched_operator FILE OPTIONS-OF-ORION-OPERATOR

asyncio's loop calls one callback after the other and serves nothing else meanwhile. So the longest callback is the
longest time for which the loop is blocked. Wall time includes the time in which other processes have the core; CPU time
does not. On SIGUSR1 the program writes the figures since the last SIGUSR1 into FILE.
"""

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from orion.cli.main import main

_NOTED_S = 0.02


class Callbacks:
    """The durations of the loop's callbacks since the last `reset`."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all durations."""
        self.longest_wall = self.longest_cpu = 0.0
        self.long: list[dict[str, Any]] = []

    def note(self, handle: asyncio.Handle, wall: float, cpu: float) -> None:
        """Record one callback."""
        self.longest_wall, self.longest_cpu = max(self.longest_wall, wall), max(self.longest_cpu, cpu)
        if cpu >= _NOTED_S and len(self.long) < 1_000:
            self.long.append({"wall_s": round(wall, 4), "cpu_s": round(cpu, 4), "what": repr(handle)[:300]})

    def figures(self) -> dict[str, Any]:
        """Return the durations as JSON."""
        longest = {"longest_wall_s": round(self.longest_wall, 4), "longest_cpu_s": round(self.longest_cpu, 4)}
        return longest | {"over_20ms_of_cpu": len(self.long), "examples": self.long[:5]}


def watch(callbacks: Callbacks) -> None:
    """Measure every callback of all event loops of this process from now on."""
    run = asyncio.Handle._run

    def measured(handle: asyncio.Handle) -> None:
        wall, cpu = time.perf_counter(), time.thread_time()
        run(handle)
        callbacks.note(handle, time.perf_counter() - wall, time.thread_time() - cpu)

    asyncio.Handle._run = measured  # type: ignore[assignment, method-assign]


if __name__ == "__main__":
    target, found = Path(sys.argv[1]), Callbacks()
    watch(found)

    def write(*_: object) -> None:
        """Write the figures and begin again."""
        part = target.with_suffix(".part")
        part.write_text(json.dumps(found.figures()))
        os.replace(part, target)
        found.reset()

    signal.signal(signal.SIGUSR1, write)
    sys.argv = ["orion", "operator", *sys.argv[2:]]
    sys.exit(main())
