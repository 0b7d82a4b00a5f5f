"""The server's and the engine's rule, on a clock that the test advances."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orion.bench.services import engine, serving
from orion.bench.services.engine import Chunk, Limits, Request
from orion.bench.services.serving import Queue
from tests.bench.services_clock import StillClock

FOREVER = float("inf")


def served(queues: list[Queue], seconds: dict[str, float], until: float = FOREVER) -> list[tuple[str, float, int]]:
    clock = StillClock()

    def execute(service: str, size: int) -> None:
        clock.now += seconds[service]

    log = serving.serve(queues, execute, clock, clock.wait_until, until)
    return [
        (queues[each].service, start, size) for each, start, size in zip(log.queue, log.start, log.size, strict=True)
    ]


def test_a_full_batch_begins_at_once_and_others_after_the_delay() -> None:
    queue = Queue("a", batch=2, max_delay=1.0, objective=9.0, arrivals=[1.0, 1.25, 5.0])
    assert served([queue], {"a": 0.5}) == [("a", 1.25, 2), ("a", 6.0, 1)]


def test_requests_that_arrive_during_a_batch_join_the_next_one() -> None:
    queue = Queue("a", batch=3, max_delay=0.5, objective=9.0, arrivals=[0.0, 1.0, 1.25, 1.5, 1.75])
    assert served([queue], {"a": 2.0}) == [("a", 0.5, 1), ("a", 2.5, 3), ("a", 4.5, 1)]


def test_the_earliest_deadline_goes_first_and_ties_go_by_the_order_of_queues() -> None:
    relaxed = Queue("relaxed", batch=1, max_delay=0.0, objective=9.0, arrivals=[0.0, 0.125])
    urgent = Queue("urgent", batch=1, max_delay=0.0, objective=1.0, arrivals=[0.25])
    twin = Queue("twin", batch=1, max_delay=0.0, objective=1.0, arrivals=[0.25])
    found = served([relaxed, urgent, twin], {"relaxed": 1.0, "urgent": 1.0, "twin": 1.0})
    assert [name for name, _, _ in found] == ["relaxed", "urgent", "twin", "relaxed"]


def test_a_server_that_cannot_keep_up_stops_at_the_end_of_the_run() -> None:
    queue = Queue("a", batch=1, max_delay=0.0, objective=1.0, arrivals=[0.0, 0.1, 0.2, 0.3])
    assert len(served([queue], {"a": 1.0}, until=2.5)) == 3
    assert queue.head == 3


@given(st.lists(st.floats(0, 5), max_size=30), st.integers(1, 4), st.floats(0, 1), st.floats(0.01, 2))
@settings(max_examples=50, deadline=None)
def test_every_request_is_served_once_in_order(
    arrivals: list[float], batch: int, max_delay: float, seconds: float
) -> None:
    queue = Queue("a", batch, max_delay, 1.0, sorted(arrivals))
    found = served([queue], {"a": seconds})
    assert sum(size for _, _, size in found) == len(arrivals)
    assert all(1 <= size <= batch for _, _, size in found)
    head = 0
    for _, start, size in found:
        assert queue.arrivals[head + size - 1] <= start
        head += size


class Recorder:
    """Executes iterations of one second, and keeps what they held."""

    def __init__(self, clock: StillClock) -> None:
        self.clock, self.steps, self.left = clock, list[tuple[list[Chunk], list[int]]](), list[int]()

    def step(self, chunks: Sequence[Chunk], decoding: Sequence[int]) -> None:
        self.steps.append((list(chunks), list(decoding)))
        self.clock.now += 1.0

    def leave(self, request: int) -> None:
        self.left.append(request)


def answered(requests: list[Request], limits: Limits, until: float = FOREVER) -> tuple[engine.Log, Recorder]:
    clock = StillClock()
    recorder = Recorder(clock)
    return engine.run(requests, limits, recorder, clock, clock.wait_until, until), recorder


def test_prompts_are_read_in_chunks_beside_the_sequences_that_decode() -> None:
    log, recorder = answered([Request(0.0, 6, 3), Request(0.0, 5, 1)], Limits(4, 8, 100))
    assert recorder.steps == [
        ([Chunk(0, 0, 6, True), Chunk(1, 0, 2, False)], []),
        ([Chunk(1, 2, 3, True)], [0]),
        ([], [0]),
    ]
    assert log.first == {0: 1.0, 1: 2.0}
    assert log.end == {0: 3.0, 1: 2.0}
    assert recorder.left == [1, 0]
    assert [row[2:] for row in log.iterations] == [(8, 0, 0), (3, 1, 7), (0, 1, 8)]


@pytest.mark.parametrize("limits", [Limits(1, 100, 1000), Limits(9, 100, 15)], ids=["sequences", "memory"])
def test_a_head_without_room_blocks_the_requests_behind_it(limits: Limits) -> None:
    log, _ = answered([Request(0.0, 10, 2), Request(0.0, 10, 2), Request(0.0, 1, 1)], limits)
    assert log.admitted == {0: 0.0, 1: 2.0, 2: 2.0 if limits.kv_tokens == 15 else 4.0}


def test_an_idle_engine_waits_for_the_next_arrival() -> None:
    log, _ = answered([Request(3.5, 2, 1), Request(9.0, 2, 1)], Limits(2, 8, 100))
    assert log.first == {0: 4.5, 1: 10.0}


def test_an_engine_that_cannot_keep_up_stops_at_the_end_of_the_run() -> None:
    log, _ = answered([Request(0.0, 2, 50)], Limits(2, 8, 100), until=10.0)
    assert log.end == {}
    assert len(log.iterations) == 10
