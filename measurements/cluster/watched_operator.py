"""Runs `orion operator` and records how long its event loop is busy without a pause: for `operator_scale`.

    python -m measurements.cluster.watched_operator FILE OPTIONS-OF-ORION-OPERATOR

asyncio's loop calls one callback after the other and serves nothing else meanwhile. So the longest callback is the
longest time for which one piece of work blocks the loop. In one *turn* the loop calls all callbacks that are due; it
sees new requests, answers and timers only between two turns. Wall time includes the time in which other processes have
the core; CPU time does not. A thread samples what the loop does in callbacks that take long. On SIGUSR1 the program
writes the figures since the last SIGUSR1 into FILE.
"""

import asyncio
import gc
import json
import os
import selectors
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

from orion.cli.main import main

_NOTED_S = 0.02
_SAMPLED_EVERY_S = 0.004
_FRAMES = 4


class Callbacks:
    """The durations of the loop's callbacks and turns since the last `reset`."""

    def __init__(self) -> None:
        self.began = 0.0
        """ When the current callback began; 0: the loop waits. """
        self.seen: list[str] = []
        """ What the loop was seen to do in the current callback. """
        self.reset()

    def reset(self) -> None:
        """Forget all durations."""
        self.longest_wall = self.longest_cpu = self.longest_turn = self.longest_collection = 0.0
        self.long: list[dict[str, Any]] = []
        self.samples: Counter[str] = Counter()
        """ What the loop was seen to do in callbacks that had taken `_NOTED_S` already. """

    def note(self, wall: float, cpu: float) -> None:
        """Record one callback."""
        self.longest_wall, self.longest_cpu = max(self.longest_wall, wall), max(self.longest_cpu, cpu)
        if cpu >= _NOTED_S and len(self.long) < 1_000:
            self.long.append({"wall_s": round(wall, 4), "cpu_s": round(cpu, 4), "seen": self.seen})
        self.seen = []

    def figures(self) -> dict[str, Any]:
        """Return the durations as JSON."""
        longest = {"longest_wall_s": self.longest_wall, "longest_cpu_s": self.longest_cpu}
        longest |= {"longest_turn_cpu_s": self.longest_turn, "longest_collection_s": self.longest_collection}
        rounded: dict[str, Any] = {name: round(value, 4) for name, value in longest.items()}
        longest_ones = sorted(self.long, key=lambda each: -float(each["cpu_s"]))[:5]
        seen = [f"{count} x {what}" for what, count in self.samples.most_common(12)]
        return rounded | {"over_20ms_of_cpu": len(self.long), "longest": longest_ones, "seen": seen}


def watch(callbacks: Callbacks) -> None:
    """Measure every callback and turn of all event loops of this process, and collections of garbage, from now on."""
    run, select, turn = asyncio.Handle._run, selectors.EpollSelector.select, [float("inf")]

    def measured(handle: asyncio.Handle) -> None:
        callbacks.began = wall = time.perf_counter()
        cpu = time.thread_time()
        run(handle)
        callbacks.note(time.perf_counter() - wall, time.thread_time() - cpu)
        callbacks.began = 0.0

    def selected(selector: Any, timeout: float | None = None) -> Any:
        callbacks.longest_turn = max(callbacks.longest_turn, time.thread_time() - turn[0])
        found = select(selector, timeout)
        turn[0] = time.thread_time()
        return found

    began = [0.0]

    def collected(phase: str, _: object) -> None:
        if phase == "start":
            began[0] = time.perf_counter()
        else:
            callbacks.longest_collection = max(callbacks.longest_collection, time.perf_counter() - began[0])

    asyncio.Handle._run = measured  # type: ignore[assignment, method-assign]
    selectors.EpollSelector.select = selected  # type: ignore[assignment, method-assign]
    gc.callbacks.append(collected)
    threading.Thread(target=_sample, args=(callbacks, threading.get_ident()), daemon=True).start()


def _sample(callbacks: Callbacks, loop: int) -> None:
    while True:
        time.sleep(_SAMPLED_EVERY_S)
        began = callbacks.began
        if began and time.perf_counter() - began >= _NOTED_S:
            frames = traceback.extract_stack(sys._current_frames()[loop])[-_FRAMES:]
            places = (f"{'/'.join(Path(each.filename).parts[-2:])}:{each.lineno} {each.name}" for each in frames)
            place = " > ".join(places)
            callbacks.samples[place] += 1
            callbacks.seen = [*callbacks.seen[-7:], place]


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
