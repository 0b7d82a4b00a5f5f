"""How soon a pod starts that must not start without an agent, once the agent is back.

    start     the pod is new: the driver waits in the kubelet's call
    restart   the container restarts: the container runtime waits in the claim's hook

The time counts from the agent's first answer until the container's first line of output, and from the start of the
agent's process. The line has the time at which containerd received it.
"""

import contextlib
import datetime
import random
import re
import subprocess
import time
from collections.abc import Mapping
from typing import Any

from measurements.cluster.claims.figures import Figure
from measurements.cluster.claims.manifests import CLAIM, by_hand, shell, template
from measurements.cluster.claims.world import World, until, world
from orion.bench.commandline import say

SIZES = {"turns": 20}
SMOKE = {"turns": 1}
KINDS = {"start": "first start", "restart": "restart"}
WAIT_S = 3.0
""" The pod waits for a random time up to this one. """
MARK = "mark-of-a-held-pod"
""" In the command line of the pod's shell, and nowhere else. """
HOOK = "orion-await-agent"


def measure(sizes: Mapping[str, int]) -> dict[str, Any]:
    """Return the raw data."""
    raw: dict[str, Any] = {kind: [] for kind in KINDS}
    chance = random.Random(1)
    with world(1, {"hp": 1, "be": 3}) as here, here.namespace() as namespace:
        here.orion.configure({"slots": {"hp": 1, "be": 3}, "onNoAgent": "hold"})
        until(lambda: here.driver_log().rpartition("onNoAgent ")[2].startswith("hold"), "the driver holds pods")
        here.create(namespace, template("be", "be"))
        for number in range(sizes["turns"]):
            for kind, wait in (("start", _waits_to_start), ("restart", _waits_to_restart)):
                name = f"{kind}-{number}"
                wait(here, namespace, name)
                time.sleep(chance.uniform(0, WAIT_S))
                raw[kind].append(_agent_comes(here, namespace, name))
                say(f"{kind} {number + 1} of {sizes['turns']}: {raw[kind][-1]['answers_s']:.2f} s")
                here.core.delete_namespaced_pod(name, namespace)
                until(lambda: not here.core.list_namespaced_pod(namespace).items, "the pod is gone")
    return raw


def figures(raw: Mapping[str, Any]) -> list[Figure]:
    """Return the rows of the table."""
    rows = []
    for kind, title in KINDS.items():
        rows += [
            Figure(f"agent answers until the container's {title}", [each["answers_s"] for each in raw[kind]], "<= 2 s"),
            Figure(f"agent's process begins until the container's {title}", [each["begun_s"] for each in raw[kind]]),
        ]
    return rows


def _waits_to_start(here: World, namespace: str, name: str) -> None:
    _end_agent(here)
    here.create(namespace, by_hand(shell(name, f": {MARK}; sleep 100000"), "be"))
    waits = re.compile(rf"/{name}-{CLAIM}-\S+ waits for an agent")
    until(lambda: waits.search(here.driver_log()) is not None, "the driver waits")


def _waits_to_restart(here: World, namespace: str, name: str) -> None:
    here.create(namespace, by_hand(shell(name, f": {MARK}; sleep 100000"), "be"))
    until(lambda: bool(_lines(here, namespace, name)), "the container runs")
    _end_agent(here)
    # A pattern that does not match itself, as it is in command lines, too.
    here.node.run(["pkill", "-KILL", "-f", f"{MARK[:-1]}[{MARK[-1]}]"])
    until(lambda: _runs(here, HOOK), "the container runtime waits")


def _end_agent(here: World) -> None:
    begun = len(here.driver_log())
    here.orion.end(here.node, "agent", 0)
    until(lambda: "agent: disconnected" in here.driver_log()[begun:], "the driver has no agent")


def _agent_comes(here: World, namespace: str, name: str) -> dict[str, float]:
    before, begun = len(_lines(here, namespace, name)), time.time()
    here.orion.begin_agent(here.node)
    until(here.agent_answers, "the agent answers")
    answered = time.time()
    until(lambda: len(_lines(here, namespace, name)) > before, "the container starts")
    started = _lines(here, namespace, name)[-1]
    return {"answers_s": round(max(0.0, started - answered), 4), "begun_s": round(started - begun, 4)}


def _lines(here: World, namespace: str, name: str) -> list[float]:
    """Return when each start of the pod's container has written its line."""
    folder = here.root.parents[1] / "var" / "log" / "pods"
    lines = []
    for path in folder.glob(f"{namespace}_{name}_*/main/*.log"):
        with contextlib.suppress(FileNotFoundError):
            lines += [line.split()[0] for line in path.read_text().splitlines() if line.endswith(" started")]
    # Python reads microseconds, and containerd writes nanoseconds.
    return sorted(datetime.datetime.fromisoformat(each[:26].rstrip("Z") + "+00:00").timestamp() for each in lines)


def _runs(here: World, program: str) -> bool:
    with contextlib.suppress(subprocess.CalledProcessError):
        return bool(here.node.run(["pgrep", "-x", program[:15]]))
    return False
