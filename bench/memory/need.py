"""An hp allocation finds a full GPU, several times: after how long the agent has asked a be trainer to leave."""

import time
from typing import Any

from orion.bench.memory.park_word import ParkWord
from orion.bench.memory.scenario import Need
from orion.bench.memory.stage import LEAD, PATIENCE, Stage, Tenant
from orion.bench.memory.table import Row, of_times

_TARGET_MS = 5.0


def measure(stage: Stage, setting: Need) -> dict[str, Any]:
    """Return for each round when hp asked for memory, when the agent's wish changed, and when hp had the memory.

    Each round has a trainer and a slot of its own. With them the agent forgets how hp grew: else it would ask a
    trainer to leave before hp needs the room.
    """
    hp = stage.server(setting.hp, setting.need_gib * 1024)
    found = []
    for number in range(setting.rounds):
        found.append(_round(stage, setting, hp))
        if number % 10 == 9:
            stage.say(f"{number + 1} of {setting.rounds} rounds")
    return {"rounds": found}


def _round(stage: Stage, setting: Need, hp: Tenant) -> dict[str, Any]:
    tenant = stage.trainer(setting.gib)
    stage.ready(tenant)
    with ParkWord(stage.gpu.slot_directory(tenant.slot)) as word:
        begin = time.monotonic() + LEAD
        block = round(setting.need_gib * 1024)
        hp.worker.command(do="grow", begin=begin, arrivals=[], block_mib=block, blocks=1, every=1.0)
        (reply,) = stage.crew.gather(hp.worker, seconds=PATIENCE)
        hp.worker.command(do="shrink")
        stage.crew.gather(hp.worker, seconds=PATIENCE)
    stage.end(tenant)
    ((start, took, status),) = reply["allocations"]
    return {"asked": begin + start, "word": word.changed, "had": begin + start + took, "status": status}


def rows(run: dict[str, Any]) -> list[Row]:
    """Return the figures."""
    early = [each for each in run["rounds"] if each["word"] is None or each["word"] < each["asked"]]
    times = [1e3 * (each["word"] - each["asked"]) for each in run["rounds"] if each not in early]
    failed = sum(each["status"] != 0 for each in run["rounds"])
    return [
        Row("needs; without a word after them", f"{len(run['rounds'])}; {len(early)}"),
        Row("allocations that failed", f"{failed}", 0, failed),
        *of_times("from hp's call to the agent's wish", times, _TARGET_MS),
    ]
