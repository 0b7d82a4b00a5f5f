"""The sentence about a pod that waits for GPUs, while others take and give back room. The lists are fake."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from orion.api_server.requests import MERGE_PATCH, ApiError, ApiServer
from orion.crds.annotations import PLACE_AGAIN
from orion.crds.claims import CLAIMS, ClaimShape
from orion.crds.policy import Priority
from orion.operator.reconciler.missing_gpus import MissingGPUs
from tests.crds.test_room_of_gpus import claimed, gpu, slice_of

SHAPE = ClaimShape(priority=Priority.BE, gpus={"train": 1}, time_milli=500).as_json()


class FakeLists(ApiServer):
    """One GPU, and claims that the test changes."""

    def __init__(self) -> None:
        self.claims: list[dict[str, Any]] = []
        self.lists_of_claims = 0
        self.listed: Callable[[], None] = lambda: None
        """ Is called by each list of claims. """
        self.labels: list[dict[str, str | None]] = []
        self.refused: dict[str, str | None] | None = None

    async def pages(self, path: str, accept: str = "", **query: str) -> AsyncIterator[dict[str, Any]]:
        del accept, query
        self.lists_of_claims += path == CLAIMS
        self.listed()
        yield {"items": self.claims if path == CLAIMS else [slice_of("n", gpu())]}

    async def patch(self, path: str, body: Any, kind: str = MERGE_PATCH) -> dict[str, Any]:
        assert (path, kind) == ("/api/v1/nodes/n", MERGE_PATCH)
        if body["metadata"]["labels"] == self.refused:
            raise ApiError(503, "not now")
        self.labels.append(body["metadata"]["labels"])
        return {}


async def test_room_that_was_read_before_the_pod_waited_does_not_say_that_nothing_is_missing() -> None:
    lists, now = FakeLists(), 100.0
    missing = MissingGPUs(lists, lambda: now)
    assert await missing.look(SHAPE) == ""
    lists.claims = [claimed(time="600")]
    now += 0.5
    assert "time: 0.5 asked, 0.4 of 1 left" in await missing.look(SHAPE)
    read = lists.lists_of_claims
    for _ in range(10):  # pods of the same shape
        assert await missing.look(SHAPE)
    assert lists.lists_of_claims == read


async def test_lists_that_take_long_are_read_for_a_tenth_of_the_time_at_most() -> None:
    """A large cluster has many claims and many pods that wait, and the operator has other work."""
    lists, now = FakeLists(), 100.0
    lists.claims = [claimed(time="600")]

    def take_a_second() -> None:
        nonlocal now
        now += 1

    lists.listed = take_a_second  # for the slices and for the claims
    missing, began = MissingGPUs(lists, lambda: now), now
    while now < began + 200:
        assert await missing.look(SHAPE)
        now += 0.5
    assert 5 <= lists.lists_of_claims <= 11


async def test_the_scheduler_is_made_to_try_again_at_most_every_five_seconds() -> None:
    lists, now = FakeLists(), 100.0
    missing = MissingGPUs(lists, lambda: now)
    tried = [{PLACE_AGAIN: "true"}, {PLACE_AGAIN: None}]
    assert await missing.look(SHAPE) == ""
    assert lists.labels == tried
    now += 4.9
    assert await missing.look(SHAPE) == ""
    assert lists.labels == tried
    now += 0.2
    assert await missing.look(SHAPE) == ""
    assert lists.labels == [*tried, *tried]
    lists.claims, now = [claimed(time="600")], now + 60
    assert await missing.look(SHAPE)
    assert lists.labels == [*tried, *tried]


async def test_a_label_whose_removal_failed_is_removed_later() -> None:
    lists, now = FakeLists(), 100.0
    missing = MissingGPUs(lists, lambda: now)
    lists.refused = {PLACE_AGAIN: None}
    with pytest.raises(ApiError):
        await missing.look(SHAPE)
    assert lists.labels == [{PLACE_AGAIN: "true"}]
    lists.refused, lists.claims = None, [claimed(time="600")]
    now += 3
    assert await missing.look(SHAPE)
    assert lists.labels == [{PLACE_AGAIN: "true"}, {PLACE_AGAIN: None}]
    now += 3
    assert await missing.look(SHAPE)
    assert len(lists.labels) == 2


async def test_a_selector_that_the_operator_does_not_evaluate_is_named() -> None:
    lists = FakeLists()
    shape = ClaimShape(priority=Priority.BE, gpus={"train": 1}, selector="1 == 2").as_json()
    said = await MissingGPUs(lists).look(shape)
    assert said == "nodes have room, but request train: a GPU must also fulfil 1 == 2, which was not checked here"
    assert lists.labels  # the scheduler evaluates it


async def test_requests_that_have_room_alone_and_not_together_are_named() -> None:
    shape = ClaimShape(priority=Priority.BE, gpus={"one": 1, "two": 1}, time_milli=600).as_json()
    said = await MissingGPUs(FakeLists()).look(shape)
    assert "no node has room for all together: with one placed, request two: no node has 1 GPU" in said
