"""A process asks for credit again and again beside an idle one of the same slot: how long such an allocation takes."""

import time
from typing import Any

from orion.bench.memory.scenario import CreditRequests
from orion.bench.memory.stage import LEAD, PATIENCE, Stage
from orion.bench.memory.table import Row, of_times

_TARGET_MS = 2.0
_SETTLE_SECONDS = 4.0
""" For so long after it has joined the agent expects a client to make contexts, and lets others wait for it. """


def measure(stage: Stage, setting: CreditRequests) -> dict[str, Any]:
    """Return for each allocation when it began, how long it took, and its CUresult.

    Each one is larger than the credit that a client gets beyond what it asks for, so each one needs an answer.
    """
    limit = round(setting.limit_gib * 1024)
    environment = stage.slot("be", memory_limit_bytes=limit << 20)
    options = {"simulated": stage.simulated, "mib": 1, "kernel_ms": 1.0}
    stage.ready(stage.start("server", options, environment))  # it is alone, so it has the whole limit as credit
    asks = stage.start("server", options, environment)
    stage.ready(asks)
    begin = time.monotonic() + _SETTLE_SECONDS + LEAD
    growth = {"block_mib": setting.block_mib, "blocks": setting.requests, "every": setting.every_seconds}
    asks.worker.command(do="grow", begin=begin, arrivals=[], **growth)
    wait = _SETTLE_SECONDS + setting.requests * setting.every_seconds + PATIENCE
    (reply,) = stage.crew.gather(asks.worker, seconds=wait)
    return {"allocations": reply["allocations"]}


def rows(run: dict[str, Any]) -> list[Row]:
    """Return the figures."""
    times = [1e3 * took for _, took, _ in run["allocations"]]
    failed = sum(status != 0 for _, _, status in run["allocations"])
    return [
        Row("allocations that need credit; failed", f"{len(times)}; {failed}", 0, failed),
        *of_times("one takes", times, _TARGET_MS),
    ]
