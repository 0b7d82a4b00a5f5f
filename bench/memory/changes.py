"""One trainer is parked and comes back several times: how long that takes, and whether its state is the same."""

import time
from typing import Any

from orion.bench.memory.scenario import Changes
from orion.bench.memory.stage import LEAD, PATIENCE, Stage
from orion.bench.memory.table import Row


def measure(stage: Stage, setting: Changes) -> dict[str, Any]:
    """Return the times of all changes, in seconds, and the two states."""
    torch = setting.torch and not stage.simulated
    moved, out, back = "", list[float](), list[float]()
    for parks in (True, False):
        stage.say("with changes" if parks else "without")
        tenant = stage.trainer(setting.gib, torch)
        stage.ready(tenant)
        for _ in range(setting.changes):
            tenant.worker.command(do="steps", count=setting.steps)
            if parks:
                time.sleep(LEAD)
                out.append(stage.move(tenant, away=True))
                back.append(stage.move(tenant, away=False))
                stage.say(f"out {out[-1]:.2f} s, back {back[-1]:.2f} s")
            stage.crew.gather(tenant.worker, seconds=PATIENCE + setting.steps * setting.step_ms / 1e3)
        tenant.worker.command(do="digest")
        (reply,) = stage.finish([tenant], {tenant.slot: 1})
        moved = moved or reply["digest"]
    return {"torch": torch, "out": out, "back": back, "moved": moved, "stayed": reply["digest"]}


def rows(run: dict[str, Any]) -> list[Row]:
    """Return the figures; the targets are for 20 GB by the driver alone."""
    gib = run["setting"]["gib"]
    part = gib * (1 << 30) / 20e9
    same = run["moved"] == run["stayed"]
    return [
        Row("changes", f"{len(run['out'])}"),
        Row(f"{gib:g} GiB out, longest, s", f"{max(run['out']):.2f}", 12 * part, max(run["out"])),
        Row(f"{gib:g} GiB back, longest, s", f"{max(run['back']):.2f}", 4 * part, max(run["back"])),
        Row("losses" if run["torch"] else "contents", "equal" if same else "different", 0, 0.0 if same else 1.0),
    ]
