"""Nothing that the reconciler does holds up its event loop for long. The tests look at causes, not at times."""

import asyncio
import gc
import weakref
from collections.abc import Iterator
from typing import Any, cast

import pytest
from yarl import URL

from orion.api_server.requests import ApiServer
from orion.operator.reconciler import garbage, listing
from orion.operator.reconciler.controller import Controller
from orion.operator.reconciler.lease import Alone
from orion.operator.reconciler.metrics import Metrics
from orion.operator.reconciler.records import Named, pod_record
from orion.operator.reconciler.state import State
from orion.operator.reconciler.watching import Intake, handler
from tests.waiting import DEADLINE


def pod(number: int) -> dict[str, Any]:
    meta = {"namespace": "n", "name": f"p{number}", "uid": f"uid-{number}", "resourceVersion": "1"}
    return {"metadata": meta, "spec": {"containers": [{"name": "main"}]}, "status": {}}


def controller_of(state: State) -> Controller:
    metrics = Metrics()
    return Controller(state, cast("ApiServer", None), Alone(metrics), metrics, "test")


class View:
    """Like kopf's views of an object: it refers to itself."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def collections() -> Iterator[list[tuple[int, int]]]:
    """The generation of each collection during the test, and how many objects the collection looked at."""
    seen: list[tuple[int, int]] = []

    def note(phase: str, about: dict[str, int]) -> None:
        if phase == "start":
            young = range(about["generation"] + 1)
            seen.append((about["generation"], sum(len(gc.get_objects(generation=each)) for each in young)))

    before = gc.get_threshold()
    gc.collect()
    gc.callbacks.append(note)
    try:
        garbage.collect_in_short_steps()
        yield seen
    finally:
        gc.callbacks.remove(note)
        gc.set_threshold(*before)


def test_no_collection_looks_at_all_records(collections: list[tuple[int, int]]) -> None:
    records = [[number] for number in range(60 * garbage.YOUNG)]
    assert records
    assert {generation for generation, _ in collections} == {0, 1}
    assert max(looked_at for _, looked_at in collections) < 8 * garbage.YOUNG


def test_what_kopf_leaves_of_events_is_freed(collections: list[tuple[int, int]]) -> None:
    views = [weakref.ref(View()) for _ in range(20 * garbage.YOUNG)]
    assert sum(view() is not None for view in views) < 2 * garbage.YOUNG


async def test_the_content_of_an_event_is_freed_once_it_is_handled() -> None:
    state = State()
    event = {"type": "ADDED", "object": pod(1)}
    intake = Intake(state, controller_of(state))
    await handler(intake, "pods")(event=event)
    assert state.pod(Named("n", "p1")) is not None
    assert event["object"] == {}


async def test_other_work_goes_on_while_all_objects_are_queued() -> None:
    state = State()
    for number in range(5_000):
        state.put_pod(pod_record(pod(number)))
    controller, turns, queued = controller_of(state), 0, asyncio.Event()

    async def other_work() -> None:
        nonlocal turns
        while not queued.is_set():
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(other_work())
    await controller.begin()
    queued.set()
    await other
    assert turns >= 5
    assert len(controller.queue) == 5_000


async def test_other_work_goes_on_between_two_objects_that_need_no_write() -> None:
    state = State()
    for number in range(100):
        state.put_pod(pod_record(pod(number)))
    controller, turns = controller_of(state), 0
    await controller.begin()
    controller._leader.taken.set()
    worker = asyncio.create_task(controller.work())
    async with asyncio.timeout(DEADLINE):
        while len(controller.queue):
            turns += 1
            await asyncio.sleep(0)
    worker.cancel()
    assert turns >= 100


async def test_other_work_goes_on_while_a_long_page_of_a_list_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "_SLICE_S", 0.0)
    state, turns = State(), 0
    lists = listing.Lists(Intake(state, controller_of(state)))
    page = {"metadata": {"resourceVersion": "9"}, "items": [pod(number) for number in range(200)]}
    taking = asyncio.create_task(lists.take(URL("https://cluster/api/v1/pods?limit=200"), page))
    while not taking.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns >= 200
    assert state.counts()["pods"] == 200


async def test_all_is_listed_once_each_list_has_come_to_its_end() -> None:
    lists = listing.Lists(Intake(State(), controller_of(State())), ("a", "b"))
    ends = ["api/v1/namespaces/a/pods", "api/v1/namespaces/b/pods", "api/v1/nodes"]
    kinds = "apis/orion.gpu/v1alpha1"
    ends += [f"{kinds}/namespaces/a/gpushares", f"{kinds}/namespaces/b/gpushares", f"{kinds}/gpudevices"]
    for path in ends:
        assert not lists.complete.is_set()
        await lists.take(URL(f"https://cluster/prefix/{path}?limit=200"), {"metadata": {"continue": "x"}})
        assert not lists.complete.is_set()
        await lists.take(URL(f"https://cluster/prefix/{path}?limit=200&continue=x"), {"metadata": {}, "items": None})
    assert lists.complete.is_set()
