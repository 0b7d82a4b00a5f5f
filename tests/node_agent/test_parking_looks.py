"""In which order the agent looks: first at who moves, then at what the driver says; then it decides."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orion.hook.layout import ParkingState
from orion.node_agent.parking.view import View
from tests.node_agent.asking_thread import Answer, Thread
from tests.node_agent.conftest import GPU
from tests.node_agent.parking_stubs import Tenants, note_views, stub_parking


@pytest.fixture
def views(monkeypatch: pytest.MonkeyPatch) -> list[View]:
    """What was decided upon."""
    return note_views(monkeypatch)


class LateThread(Thread):
    """It answers what it was asked when it goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[Callable[[], None]] = []

    def submit(self, ask: Callable[..., object], *arguments: Any) -> Answer:
        answer = Answer()
        self.open.append(lambda: answer.set_result(ask(*arguments)))
        if not self.hangs:
            self.go_on()
        return answer

    def go_on(self) -> None:
        while self.open:
            self.open.pop()()


class Seen(Tenants):
    """Notes when the agent has seen that the tenant has moved, and when the driver says what is free."""

    def __init__(self) -> None:
        super().__init__()
        self.happened: list[str] = []

    def look_at_one(self, now: float, *_: Any) -> None:
        super().look_at_one(now)
        self.happened += ["moved"] if self.one.known.moved == now else []

    def free(self, _: Any) -> int:
        """Return how much had happened by then, in place of an amount."""
        self.happened.append("asked")
        return len(self.happened)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(events=st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), min_size=1, max_size=8))
def test_no_decision_is_made_upon_an_answer_of_before_a_move(
    events: list[tuple[bool, bool, bool]], views: list[View], tmp_path: Path
) -> None:
    """Each event: whether the driver hangs, whether the tenant begins to move, and whether it is done."""
    thread, seen = LateThread(), Seen()
    parking, tenants = stub_parking(thread, tmp_path), cast("Any", seen)
    parking.tenants = tenants
    parking._asking._source = cast(
        "Any", SimpleNamespace(memory_free_bytes=seen.free, memory_of_processes=lambda gpu: {})
    )

    async def look(hangs: bool, begins: bool, is_done: bool) -> None:
        thread.hangs = hangs
        if not hangs:
            thread.go_on()
            await asyncio.sleep(0)
        seen.one.moves |= begins
        seen.record.parking = SimpleNamespace(state=ParkingState.PARKED if is_done else ParkingState.LEAVING)
        moves, before = seen.one.moves, len(views)
        await parking.look(at_once=begins)
        moved = max((number for number, what in enumerate(seen.happened, 1) if what == "moved"), default=0)
        for view in views[before:]:
            free = view.cards[GPU].free
            assert free is None or free > moved
        if moves and is_done and not hangs:
            assert views[-1].cards[GPU].free is not None, "it is decided at once"

    async def run() -> None:
        for event in events:
            await look(*event)

    asyncio.run(run())
