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
from collections.abc import Callable, Iterator, Mapping
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
SIZES = {"turns": 20, "rest_s": 600, "flaps": 8, "flapping_s": 10, "xids": 20}
SMOKE = {"turns": 1, "rest_s": 15, "flaps": 2, "flapping_s": 10, "xids": 2}
UNHEALTHY, CORDONED = "orion.gpu/unhealthy", "orion.gpu/cordoned"
ACCEPTED = "kubelet: it has accepted the driver"


def measure(sizes: Mapping[str, int]) -> dict[str, Any]:
    """Return the raw data."""
    raw: dict[str, Any] = {}
    with (
        world(GPUS, {"hp": 1, "be": 7}) as here,
        Seen(here.objects.list_cluster_custom_object, **DRA, plural="resourceslices") as slices,
    ):
        raw["rest"] = _rest(here, slices, sizes["rest_s"])
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


def _rest(here: World, slices: Seen, seconds: int) -> dict[str, float]:
    say(f"rest: {seconds} s")
    time.sleep(CALM_S)
    with _writes(here, slices) as written:
        time.sleep(seconds)
    return {"seconds": seconds, "writes": len(written)}


@contextlib.contextmanager
def _writes(here: World, slices: Seen) -> Iterator[list[tuple[float, dict[str, Any]]]]:
    """Yield a list that has the time and the devices of each write in the context, at its end.

    Raises:
        RuntimeError: the watch has missed a write, by the pool's generation.
    """

    def generation() -> int:
        (found,) = here.objects.list_cluster_custom_object(**DRA, plural="resourceslices")["items"]
        return int(found["spec"]["pool"]["generation"])

    number, before, written = generation(), len(slices.events), list[tuple[float, dict[str, Any]]]()
    yield written
    written += [(at, plain) for at, _, plain in slices.events[before:]]
    if len(written) != generation() - number:
        raise RuntimeError(f"the watch has {len(written)} writes, and the pool had {generation() - number}")


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
    """Each time another GPU, as the agent takes a GPU back later after each relapse. Every second one ends sick."""
    here.options["agent"] = ["--recovery-seconds", "0.1"]
    here.orion.end(here.node, "agent")
    here.orion.begin_agent(here.node)
    until(here.agent_answers, "the agent answers")
    faults, chance, uuids = Faults(here.node), random.Random(1), [gpu.uuid.lower() for gpu in here.snapshot().gpus]

    def lose(gpu: int, bad: bool) -> None:
        faults.say("lose" if bad else "restore", gpu)

    def cordon(gpu: int, bad: bool) -> None:
        body = {"spec": {"cordon": bad}}
        here.objects.patch_cluster_custom_object("orion.gpu", "v1alpha1", "gpudevices", uuids[gpu], body)

    try:
        for what, change, taint in (("health", lose, UNHEALTHY), ("cordon", cordon, CORDONED)):
            for number in range(flaps):
                gpu, first = number % GPUS, number % 2 == 1
                change(gpu, first)
                time.sleep(2 * CALM_S)
                due = [(step + chance.random()) * seconds / CHANGES for step in range(CHANGES)]
                found = _flap(here, slices, uuids[gpu], taint, due, lambda bad: change(gpu, bad), first)  # noqa: B023
                yield {"what": what, "seconds": seconds} | found
                say(f"{what}, {number + 1} of {flaps}: {len(found['written_s'])} writes")
                change(gpu, False)
    finally:
        faults.end()


def _flap(
    here: World, slices: Seen, gpu: str, taint: str, due: list[float], change: Callable[[bool], None], bad: bool
) -> dict[str, Any]:
    """Change a GPU at times, which are random, since the agent looks at the GPUs in equal intervals."""
    reported: list[tuple[float, tuple[bool, bool]]] = []
    with _writes(here, slices) as written:
        threading.Thread(target=_follow_agent, args=(here.root, gpu, reported), daemon=True).start()
        began = until(lambda: bool(reported), "the agent reports the GPU")
        for at in due:
            time.sleep(max(0.0, began + at - time.monotonic()))
            bad = not bad
            change(bad)
        until(lambda: _has(here.devices(), gpu, taint) == bad, "the last state")
        time.sleep(2 * CALM_S)
    states = [(at, _has(_offered(plain), gpu, taint)) for at, plain in written]
    return {
        "reported_s": [round(at - began, 3) for at, _ in reported[1:]],
        "written_s": [round(at - began, 3) for at, _ in states],
        "last_s": round(max(0.0, _since_when(states) - reported[-1][0]), 4),
    }


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
