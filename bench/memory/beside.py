"""hp serves beside resident trainers, and while they leave and come back one after the other: windows in turns.

hp's cache does not grow, so what differs between two windows is the changes alone. They happen by `orion park`'s call.
"""

import itertools
import statistics
import time
from collections.abc import Iterator
from typing import Any

from orion.bench import raw_data
from orion.bench.arrivals import poisson_arrivals
from orion.bench.memory.scenario import Beside
from orion.bench.memory.stage import LEAD, PATIENCE, Stage, Tenant
from orion.bench.memory.table import Row
from orion.bench.samples import latencies_ms, percentile

_MORE_SECONDS = 10.0
""" The trainers' loops last for so much longer with each pair: the last change of a window ends after the window. """


def measure(stage: Stage, setting: Beside) -> dict[str, Any]:
    """Return hp's requests of all windows, and how long each change took."""
    hp = stage.server(setting.hp)
    tenants = []
    for _ in range(setting.tenants):
        tenants.append(stage.trainer(setting.gib))
        stage.ready(tenants[-1])
    last = setting.pairs * (2 * setting.seconds + _MORE_SECONDS)
    for tenant in tenants:
        tenant.worker.command(do="loop", begin=time.monotonic(), end=time.monotonic() + last)
    turns, windows = itertools.cycle(tenants), []
    for number in range(setting.pairs):
        for moves in (number % 2 == 0, number % 2 == 1):
            stage.say(f"pair {number + 1} of {setting.pairs}: {'changes' if moves else 'resident'}")
            windows.append(_window(stage, setting, hp, turns if moves else None, number))
    stage.say("the trainers end")
    hp.worker.process.close_commands()
    stage.finish(tenants, {tenant.slot: 1 for tenant in tenants})
    return {"windows": windows}


def _window(stage: Stage, setting: Beside, hp: Tenant, turns: Iterator[Tenant] | None, seed: int) -> dict[str, Any]:
    """Let hp serve for a window; both windows of a pair have the same arrivals."""
    arrivals = poisson_arrivals(setting.hp.per_second, setting.seconds, seed=seed)
    begin = time.monotonic() + LEAD
    hp.worker.command(do="serve", begin=begin, arrivals=arrivals)
    changes = []
    if turns is not None:
        time.sleep(max(0.0, begin - time.monotonic()))
    while turns is not None and time.monotonic() < begin + setting.seconds:
        tenant = next(turns)
        changes.append([stage.move(tenant, away=True), stage.move(tenant, away=False)])
    (reply,) = stage.crew.gather(hp.worker, seconds=setting.seconds + PATIENCE)
    served = {"arrivals": arrivals, "ends": raw_data.rounded(reply["ends"])}
    return {**served, "moves": turns is not None, "changes": changes}


def rows(run: dict[str, Any]) -> list[Row]:
    """Return the figures: of all requests together, and the median over pairs of windows."""
    still = [latencies_ms(each["arrivals"], each["ends"]) for each in run["windows"] if not each["moves"]]
    moving = [latencies_ms(each["arrivals"], each["ends"]) for each in run["windows"] if each["moves"]]
    changes = [change for each in run["windows"] for change in each["changes"]]
    out, back = (statistics.median(each) for each in zip(*changes, strict=True))
    found = [Row("changes", f"{len(changes)}"), Row("out and back, median, s", f"{out:.2f}, {back:.2f}")]
    for rank in (50, 99):
        base, now = percentile([*itertools.chain(*still)], rank), percentile([*itertools.chain(*moving)], rank)
        pairs = zip(moving, still, strict=True)
        ratios = sorted(percentile(one, rank) / percentile(other, rank) for one, other in pairs)
        middle = statistics.median(ratios)
        text = f"{middle:.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})"
        found += [
            Row(f"hp p{rank}, changes over resident, ms", f"{now:.2f} / {base:.2f} = {now / base:.3f}"),
            Row(f"hp p{rank}, the same in each pair, median", text, 1.05 if rank == 99 else None, middle),
        ]
    return found
