"""Parts that serve batches: against a slow loop that goes from event to event, and against queueing theory."""

import math
from dataclasses import replace
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orion.planning.serving.plans import Assignment, Part, Plan
from orion.simulation.serving import batches, slices
from orion.simulation.serving.batches import Drop, Queue, Served
from orion.simulation.serving.confirm import miss_ratios
from orion.simulation.serving.dispatch import weighted
from orion.simulation.serving.rates import constant

Log = dict[tuple[int, int], tuple[float, float, int] | None]
""" For each queue and request: begin, end and size of its batch; None: dropped. """


def _slowly(queues: list[Queue], order: str, drop: Drop) -> Log:
    """Serve all requests as the text of the rules says, one event after the other."""
    log: Log = {}
    waiting: list[list[int]] = [[] for _ in queues]
    coming = [list(range(len(queue.arrivals))) for queue in queues]
    now, busy_until = 0.0, 0.0
    while any(waiting) or any(coming):
        for number, queue in enumerate(queues):
            while coming[number] and queue.arrivals[coming[number][0]] <= now:
                waiting[number].append(coming[number].pop(0))
        may = [
            (queue.arrivals[waits[0]] + (queue.objective if order == "edf" else 0), number)
            for number, (queue, waits) in enumerate(zip(queues, waiting, strict=True))
            if waits and (len(waits) >= queue.batch or queue.arrivals[waits[0]] + queue.max_delay <= now)
        ]
        if may and busy_until <= now:
            number = min(may)[1]
            queue, waits = queues[number], waiting[number]
            while waits:
                late = now - queue.arrivals[waits[0]]
                if drop.rule == "eager":
                    late += queue.times[min(len(waits), queue.batch)]
                if drop.rule == "none" or late <= drop.ratio * queue.objective:
                    break
                log[number, waits.pop(0)] = None
            size = min(len(waits), queue.batch)
            for request in waits[:size]:
                log[number, request] = now, now + queue.times[size], size
            busy_until = now + queue.times[size] if size else now
            waiting[number] = waits[size:]
            continue
        events = [queue.arrivals[left[0]] for queue, left in zip(queues, coming, strict=True) if left]
        events += [q.arrivals[waits[0]] + q.max_delay for q, waits in zip(queues, waiting, strict=True) if waits]
        events.append(busy_until)
        now = min(event for event in events if event > now)
    return log


def _log(served: list[Served]) -> Log:
    return {
        (number, request): None if math.isnan(start) else (start, end, size)
        for number, each in enumerate(served)
        for request, (start, end, size) in enumerate(
            zip(each.starts.tolist(), each.ends.tolist(), each.batches.tolist(), strict=True)
        )
    }


@st.composite
def queue(draw: st.DrawFn) -> Queue:
    gaps = draw(st.lists(st.sampled_from([0, 0, 1, 2, 3, 7, 20]), max_size=25))
    times = [0, *accumulate(draw(st.lists(st.integers(1, 6), min_size=1, max_size=5)))]
    return Queue(
        [float(at) for at in accumulate(gaps)], [float(time) for time in times], float(draw(st.integers(0, 9))),
        float(draw(st.integers(1, 25))),
    )  # fmt: skip


drops = st.builds(Drop, st.sampled_from(batches.DROP_RULES), st.sampled_from([0.5, 1.0, 2.0]))


@given(st.lists(queue(), min_size=1, max_size=4), st.sampled_from(["fifo", "edf"]), drops)
def test_each_request_begins_and_ends_as_in_a_loop_from_event_to_event(
    queues: list[Queue], order: str, drop: Drop
) -> None:
    assert _log(batches.serve(queues, order, drop)) == _slowly(queues, order, drop)


@given(st.lists(queue(), min_size=1, max_size=4))
def test_requests_that_wait_for_no_others_begin_and_end_as_in_that_loop(queues: list[Queue]) -> None:
    alone = [replace(each, times=each.times[:2], max_delay=0.0) for each in queues]
    assert _log(batches.serve(alone, "fifo")) == _slowly(alone, "fifo", batches.NONE)


@given(queue(), drops)
def test_one_service_in_slices_is_served_as_without(alone: Queue, drop: Drop) -> None:
    assert _log(slices.serve([alone], drop)) == _slowly([alone], "fifo", drop)


@given(st.lists(queue(), min_size=1, max_size=3), drops, st.integers(1, 5))
def test_slices_give_each_batch_its_time_and_never_more_than_the_gpu(
    queues: list[Queue], drop: Drop, slice_ns: int
) -> None:
    served = slices.serve(queues, drop, slice_ns)
    begun = []
    for each, result in zip(queues, served, strict=True):
        for start, end, size in {entry for entry in _log([result]).values() if entry is not None}:
            assert end - start >= each.times[size]
            begun.append((start, end, each.times[size]))
    for start, _, _ in begun:
        for _, end, _ in begun:
            inside = sum(time for first, last, time in begun if start <= first and last <= end)
            assert inside <= max(0.0, end - start)


def test_two_batches_alternate_in_slices() -> None:
    queues = [Queue([0.0], [0.0, 5.0]), Queue([1.0], [0.0, 3.0])]
    first, second = slices.serve(queues, slice_ns=2.0)
    # 0-2 first, 2-4 second, 4-6 first, 6-7 second, 7-8 first
    assert (first.ends.tolist(), second.starts.tolist(), second.ends.tolist()) == ([8.0], [1.0], [7.0])


def test_a_change_of_the_process_takes_its_time_and_a_process_that_goes_on_pays_none() -> None:
    queues = [Queue([0.0, 20.0], [0.0, 5.0]), Queue([1.0, 25.0], [0.0, 3.0])]
    first, second = slices.serve(queues, slice_ns=2.0, change_ns=0.5)
    # 0-2 first, 2.5-4.5 second, 5-7 first, 7.5-8.5 second, 9-10 first; then 20-25 first, 25.5-28.5 second
    assert first.ends.tolist() == [10.0, 25.0]
    assert second.ends.tolist() == [8.5, 28.5]


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_the_mean_wait_with_poisson_arrivals_and_equal_times_is_that_of_theory(load: float) -> None:
    arrivals = constant(load * 1000).arrivals(400, "poisson", np.random.default_rng(7))
    (served,) = batches.serve([Queue(arrivals.tolist(), [0.0, 1e6])], "fifo")
    assert (served.starts - arrivals).mean() / 1e6 == pytest.approx(load / (2 * (1 - load)), rel=0.03)


@given(st.integers(0, 300), st.lists(st.sampled_from([1.0, 2.0, 2.5, 10.0]), min_size=1, max_size=5))
def test_each_part_gets_its_proportion_of_the_requests(count: int, throughputs: list[float]) -> None:
    owners = weighted(count, throughputs)
    assert len(owners) == count
    for part, throughput in enumerate(throughputs):
        assert abs((owners == part).sum() - count * throughput / sum(throughputs)) <= len(throughputs)


def test_a_large_part_beside_many_small_ones_gets_each_request_that_it_would_finish_first() -> None:
    throughputs = [50.0] + [1.0] * 50
    assert weighted(50, throughputs).tolist() == [0] * 50
    assert weighted(52, throughputs).tolist() == [0] * 50 + [1, 2]


def test_a_plan_is_tried_out_with_poisson_requests_on_each_part() -> None:
    def part(gpu: int, throughput: float) -> Part:
        return Part(gpu, 100, 0, "exclusive", "fifo", (Assignment("a", 1, throughput, 0.0),))

    plan = Plan((part(0, 50.0), part(1, 150.0)))
    asked = {"a": 100.0}, {"a": 10.0}, lambda part, name, size: 9.0 if part.gpu else 11.0
    found = miss_ratios(plan, *asked, seconds=100.0, seed=3)
    assert found == miss_ratios(plan, *asked, seconds=100.0, seed=3)
    assert found["a"] is not None
    assert 0.25 < found["a"] < 1
    assert miss_ratios(plan, {"a": 0.0}, {"a": 10.0}, lambda *_: 1.0, 10.0) == {"a": None}
    assert miss_ratios(Plan(()), {"a": 1.0}, {"a": 10.0}, lambda *_: 1.0, 10.0) == {"a": 1.0}
