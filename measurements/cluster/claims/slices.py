"""When the node's slice is there, how often it is written, and how soon it says that a GPU is sick.

    registered   begins when the kubelet's folder for plugins appears; ends when the kubelet has accepted the driver
    restarted    begins when a killed kubelet starts again, and when it deletes the slice; ends when the slice is back
    deleted      begins when somebody has deleted the slice; ends when it is back
    rest         counts the writes while nothing happens
    flapping     a GPU changes its health; counts the writes, and the time from the last change of the agent's verdict
                 until the slice says it. The agent does not follow each change, as a GPU must be well for a while. So
                 the same with a GPU that is cordoned and not, which the agent reports each time
    xid          begins when a GPU reports an Xid; ends when its device has a taint

Writes are counted by a watch of the API server, not by the driver.
"""

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from measurements.cluster.claims.faults import Faults
from measurements.cluster.claims.figures import Figure
from measurements.cluster.claims.seen import Seen
from measurements.cluster.claims.world import DRA, World, until, world
from orion.bench.commandline import say
from orion.errors import OrionError
from orion.node_agent.api.client import AgentClient

GPUS = 8
XID = 79
CHANGES = 20
CALM_S = 5.0
""" Longer than the driver ever gathers changes. """
SIZES = {"turns": 20, "rest_s": 600, "flaps": 10, "flapping_s": 10, "xids": 20}
SMOKE = {"turns": 1, "rest_s": 15, "flaps": 1, "flapping_s": 10, "xids": 2}
UNHEALTHY, CORDONED = "orion.gpu/unhealthy", "orion.gpu/cordoned"
ACCEPTED = "kubelet: it has accepted the driver"


def measure(sizes: Mapping[str, int]) -> dict[str, Any]:
    """Return the raw data."""
    raw: dict[str, Any] = {}
    with (
        world(GPUS, {"hp": 1, "be": 7}) as here,
        Seen(here.objects.list_cluster_custom_object, **DRA, plural="resourceslices") as slices,
    ):
        raw["rest"] = _rest(slices, sizes["rest_s"])
        raw["xid_s"] = list(_xids(here, slices, sizes["xids"]))
        raw["deleted_s"] = list(_deleted(here, slices, sizes["turns"]))
        raw["restarted"] = list(_restarted(here, slices, sizes["turns"]))
        raw["registered_s"] = list(_registered(here, sizes["turns"]))
        raw["flapping"] = list(_flapping(here, slices, sizes["flaps"], sizes["flapping_s"]))
    return raw


def figures(raw: Mapping[str, Any]) -> list[Figure]:
    """Return the rows of the table."""
    rest = raw["rest"]
    return [
        Figure("registered after the plugin folder appears", raw["registered_s"], "<= 3 s"),
        Figure("slice back after a kubelet began to start", [each["begun_s"] for each in raw["restarted"]], "<= 5 s"),
        Figure("slice back after the kubelet deleted it", [each["deleted_s"] for each in raw["restarted"]]),
        Figure("slice back after a deletion by hand", raw["deleted_s"], "<= 3 s"),
        Figure(f"writes at rest in {rest['seconds']} s", [rest["writes"]], "0", "writes"),
        *_rows_of_flapping(raw["flapping"]),
        Figure("Xid to taint", raw["xid_s"], "<= 3 s"),
    ]


def _rows_of_flapping(flapping: list[dict[str, Any]]) -> Iterator[Figure]:
    for what, title in (("health", "a GPU that changes health"), ("cordon", "a GPU that is cordoned or not")):
        turns = [each for each in flapping if each["what"] == what]
        counts = [len(each["written_s"]) for each in turns]
        yield Figure(f"writes for {title} {CHANGES} times in {turns[0]['seconds']} s", counts, "<= 4", "writes")
        yield Figure(
            "changes of it that the agent reported to the driver",
            [len(each["reported_s"]) for each in turns],
            "",
            "changes",
        )
        yield Figure(
            "its last state in the slice, after the agent's last change", [each["last_s"] for each in turns], "<= 3 s"
        )


def _rest(slices: Seen, seconds: int) -> dict[str, float]:
    say(f"rest: {seconds} s")
    time.sleep(CALM_S)
    before = len(slices.events)
    time.sleep(seconds)
    return {"seconds": seconds, "writes": len(slices.events) - before}


def _xids(here: World, slices: Seen, count: int) -> Iterator[float]:
    """Each GPU is sick for the ten seconds after which the agent takes it back."""
    chance, faults = random.Random(1), Faults(here.node)
    try:
        for number in range(count):
            gpu = here.snapshot().gpus[number % GPUS].uuid.lower()
            until(lambda gpu=gpu: not _has(here.devices(), gpu, UNHEALTHY), "the GPU is healthy")  # type: ignore[misc]
            time.sleep(chance.uniform(0, 2))
            began = faults.say("xid", number % GPUS, XID)
            seen = slices.first(lambda _, plain, gpu=gpu: _has(_offered(plain), gpu, UNHEALTHY), began, "the taint")  # type: ignore[misc]
            yield seen - began
            say(f"Xid {number + 1} of {count}: {seen - began:.2f} s")
    finally:
        faults.end()


def _deleted(here: World, slices: Seen, turns: int) -> Iterator[float]:
    for _ in range(turns):
        began = time.monotonic()
        name = f"{here.node.name}-orion.gpu"
        here.objects.delete_cluster_custom_object(**DRA, plural="resourceslices", name=name)
        back = slices.first(lambda kind, plain: kind == "ADDED" and len(_offered(plain)) == GPUS, began, "the slice")
        say(f"deleted by hand: back after {back - began:.2f} s")
        yield back - began
        time.sleep(CALM_S)


def _restarted(here: World, slices: Seen, turns: int) -> Iterator[dict[str, float]]:
    for _ in range(turns):
        here.node.end("kubelet")
        began = time.monotonic()
        here.node.begin("kubelet")
        slices.first(lambda kind, _: kind == "DELETED", began, "the kubelet deletes the slice")
        here.node.wait_until_ready()
        time.sleep(CALM_S)
        gone = [at for at, kind, _ in slices.events if at >= began and kind == "DELETED"][-1]
        back = slices.first(lambda kind, plain: kind == "ADDED" and len(_offered(plain)) == GPUS, gone, "the slice")
        yield {"begun_s": back - began, "deleted_s": back - gone}
        say(f"kubelet restarted: slice gone after {gone - began:.2f} s, back after {back - began:.2f} s")


def _registered(here: World, turns: int) -> Iterator[float]:
    """The driver stands still until a kubelet that finds no folder has made one; else it would make the folder."""
    registry, sockets = here.kubelet / "plugins_registry", here.kubelet / "plugins" / "orion.gpu"
    chance, driver = random.Random(1), here.orion.pids()[f"orion/{here.node.name}-driver"]
    for _ in range(turns):
        here.node.end("kubelet")
        os.kill(driver, signal.SIGSTOP)
        for path in [*registry.iterdir(), *sockets.glob("*.sock")]:
            path.unlink()
        registry.rmdir()
        accepted = here.driver_log().count(ACCEPTED)
        time.sleep(chance.uniform(0, 1))  # else the driver's looks would be in step with the kubelet's start
        here.node.begin("kubelet")
        appeared = until(registry.exists, "the kubelet makes its folder")
        os.kill(driver, signal.SIGCONT)
        seen = until(lambda accepted=accepted: here.driver_log().count(ACCEPTED) > accepted, "the driver is accepted")  # type: ignore[misc]
        yield seen - appeared
        say(f"registered {seen - appeared:.2f} s after the folder appeared")
        here.node.wait_until_ready()
        time.sleep(CALM_S)


def _flapping(here: World, slices: Seen, flaps: int, seconds: int) -> Iterator[dict[str, Any]]:
    """The last state is the one and the other in turns."""
    here.options["agent"] = ["--recovery-seconds", "0.1"]
    here.orion.end(here.node, "agent")
    here.orion.begin_agent(here.node)
    until(here.agent_answers, "the agent answers")
    gpu, faults, chance = here.snapshot().gpus[0].uuid.lower(), Faults(here.node), random.Random(1)

    def lose(bad: bool) -> None:
        faults.say("lose" if bad else "restore", 0)

    def cordon(bad: bool) -> None:
        body = {"spec": {"cordon": bad}}
        here.objects.patch_cluster_custom_object("orion.gpu", "v1alpha1", "gpudevices", gpu, body)

    reported: list[tuple[float, tuple[bool, bool]]] = []
    threading.Thread(target=_follow_agent, args=(here.root, gpu, reported), daemon=True).start()
    try:
        for what, change, taint in (("health", lose, UNHEALTHY), ("cordon", cordon, CORDONED)):
            bad = False
            for number in range(flaps):
                if number:
                    bad = not bad
                    change(bad)
                time.sleep(2 * CALM_S)
                before, reported_before, began = len(slices.events), len(reported), time.monotonic()
                for step in range(CHANGES):  # at random times, since the agent looks at the GPUs in equal intervals
                    at = began + (step + chance.random()) * seconds / CHANGES
                    time.sleep(max(0.0, at - time.monotonic()))
                    bad = not bad
                    change(bad)
                until(lambda: _has(here.devices(), gpu, taint) == bad, "the last state")  # noqa: B023
                time.sleep(2 * CALM_S)
                states = [(at, _has(_offered(plain), gpu, taint)) for at, _, plain in slices.events[before:]]
                changes = reported[reported_before:]
                yield {
                    "what": what,
                    "seconds": seconds,
                    "reported_s": [round(at - began, 3) for at, _ in changes],
                    "written_s": [round(at - began, 3) for at, _ in states],
                    "last_s": max(0.0, _since_when(states) - changes[-1][0]),
                }
                say(f"{what}, {number + 1} of {flaps}: {len(states)} writes")
            change(False)
    finally:
        faults.end()


def _follow_agent(root: Path, gpu: str, reported: list[tuple[float, tuple[bool, bool]]]) -> None:
    """Record each change of a GPU that the agent tells its followers, of which the driver is one."""
    with contextlib.suppress(OrionError), AgentClient(root) as agent:
        for message in agent.watch_devices():
            (state,) = ((each.healthy, each.cordoned) for each in message.devices if each.uuid.lower() == gpu)
            if not reported or reported[-1][1] != state:
                reported.append((time.monotonic(), state))


def _since_when(states: list[tuple[float, bool]]) -> float:
    """Return since when the last state has been there without a break."""
    since = 0.0
    for number, (at, state) in enumerate(states):
        if number == 0 or state != states[number - 1][1]:
            since = at
    return since


def _offered(plain: Mapping[str, Any]) -> list[dict[str, Any]]:
    return list(plain["spec"].get("devices") or ())


def _has(devices: list[dict[str, Any]], gpu: str, taint: str) -> bool:
    found = (each for each in devices if each["name"] == gpu)
    return any(taint == each["key"] for device in found for each in device.get("taints") or ())
