"""Two pods whose floors together are more than one GPU has: the second waits, and runs once the first has ended.

pending    begins when the second pod is created; ends when the scheduler says that it has no place
sentence   the same, until the pod or its Events say what is missing of the GPU
runs       begins when the first pod has ended; ends when the second is Running
"""

import re
import time
from collections.abc import Mapping
from typing import Any

from measurements.cluster.claims.figures import Figure
from measurements.cluster.claims.manifests import as_usual, share, shell
from measurements.cluster.claims.seen import Seen
from measurements.cluster.claims.world import POLL_S, World, until, world
from orion.bench.commandline import say

SIZES = {"turns": 10}
SMOKE = {"turns": 1}
FLOORS: dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "time": ({"compute": {"request": 0.6}}, {"compute": {"request": 0.5}}),
    "memory": ({"memory": {"limit": "50Gi"}}, {"memory": {"limit": "40Gi"}}),
}
TITLES = {"time": "0.6 and 0.5 of a GPU's time", "memory": "50 and 40 GiB of 80 GiB"}
SENTENCE = re.compile(r"(time|memory): \S+ asked, \S+ of \S+ left")
""" As `orion explain pod` words it. """
NO_PLACE = "cannot allocate all claims"
""" The scheduler's words. """
SENTENCE_S = 10.0
""" A sentence that has not come after this time does not come. """


def measure(sizes: Mapping[str, int]) -> dict[str, Any]:
    """Return the raw data."""
    raw: dict[str, Any] = {what: [] for what in FLOORS}
    with world(1, {"hp": 1, "be": 7}) as here:
        for number in range(sizes["turns"]):
            for what, floors in FLOORS.items():
                with here.namespace() as namespace:
                    raw[what].append(_turn(here, namespace, floors))
                say(f"turn {number + 1} of {sizes['turns']}, {what}: {raw[what][-1]}")
                until(lambda: not any(slot.HasField("claim") for gpu in here.snapshot().gpus for slot in gpu.slots),
                      "no claim holds a slot")  # fmt: skip
    return raw


def figures(raw: Mapping[str, Any]) -> list[Figure]:
    """Return the rows of the table."""
    rows = []
    for what, title in TITLES.items():
        turns = raw[what]
        rows += [
            Figure(f"{title}: the second is Pending", [each["pending_s"] for each in turns], "<= 3 s"),
            Figure(
                f"{title}: the sentence says why",
                [each["sentence_s"] for each in turns if each["sentence_s"]],
                "<= 3 s",
            ),
            Figure(f"{title}: the second runs after the first ended", [each["runs_s"] for each in turns], "<= 3 s"),
        ]
    return rows


def _turn(here: World, namespace: str, floors: tuple[Mapping[str, Any], Mapping[str, Any]]) -> dict[str, Any]:
    for name, floor in zip(("first", "second"), floors, strict=True):
        here.create(namespace, share(name, "be", **floor))
    with Seen(here.core.list_namespaced_pod, namespace) as pods:
        here.create(namespace, as_usual(shell("first"), "be", "first"))
        pods.first(_runs("first"), 0.0, "the first pod runs")
        created = time.monotonic()
        here.create(namespace, as_usual(shell("second"), "be", "second"))
        pending = pods.first(_waits("second"), created, "the second pod waits")
        sentence = _sentence(here, namespace, "second", created)
        here.core.delete_namespaced_pod("first", namespace)
        ended = pods.first(_has_ended("first"), pending, "the first pod ends")
        runs = pods.first(_runs("second"), pending, "the second pod runs")
        phases = [plain["status"].get("phase") for _, _, plain in pods.events if plain["metadata"]["name"] == "second"]
    assert "Failed" not in phases
    return {
        "pending_s": round(pending - created, 4),
        "sentence_s": sentence,
        "runs_s": round(runs - ended, 4),
    }


def _sentence(here: World, namespace: str, name: str, since: float) -> float | None:
    """Return how long it took until the pod or its Events had the sentence; None: they have not."""
    while time.monotonic() < since + SENTENCE_S:
        conditions = here.core.read_namespaced_pod(name, namespace).status.conditions or ()
        selector = f"involvedObject.name={name}"
        events = here.core.list_namespaced_event(namespace, field_selector=selector).items
        if any(SENTENCE.search(each.message or "") for each in (*conditions, *events)):
            return round(time.monotonic() - since, 4)
        time.sleep(10 * POLL_S)
    return None


def _runs(name: str) -> Any:
    return lambda _, plain: plain["metadata"]["name"] == name and plain["status"].get("phase") == "Running"


def _waits(name: str) -> Any:
    def waits(_: str, plain: dict[str, Any]) -> bool:
        conditions = plain["status"].get("conditions", ()) if plain["metadata"]["name"] == name else ()
        return any(NO_PLACE in each.get("message", "") for each in conditions)  # not: its claim does not exist yet

    return waits


def _has_ended(name: str) -> Any:
    """A pod has ended when its containers have, or when it is gone."""

    def ended(kind: str, plain: dict[str, Any]) -> bool:
        if plain["metadata"]["name"] != name:
            return False
        statuses = plain["status"].get("containerStatuses", ())
        return kind == "DELETED" or any("terminated" in each["state"] for each in statuses)

    return ended
