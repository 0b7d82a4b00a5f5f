"""Engines with continuous batching: against a slow loop that touches each sequence in each iteration."""

import math
from dataclasses import dataclass, replace
from itertools import accumulate

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orion.simulation.engine.batching import Answered, Engine, Requests, answer

Times = list[tuple[float, float, float]]


@dataclass
class _Sequence:
    request: int
    prompt: int
    output: int
    given: int = 0
    to_compute: int = 0


def _slowly(engine: Engine, requests: Requests) -> Times:
    """Answer all requests as the text of the rules says, sequence by sequence."""
    waiting = [
        _Sequence(number, prompt, output)
        for number, (prompt, output) in enumerate(zip(requests.prompts, requests.outputs, strict=True))
    ]
    start, first, end = ([math.nan] * len(waiting) for _ in range(3))
    active: list[_Sequence] = []
    now = 0.0

    def room(each: _Sequence) -> int:
        return each.prompt + (each.output if engine.admission == "reserve" else each.given)

    while waiting or active:
        if not active and requests.arrivals[waiting[0].request] > now:
            now = requests.arrivals[waiting[0].request]
        while sum(map(room, active)) > engine.kv_tokens:
            waiting.insert(0, active.pop())
        while waiting and requests.arrivals[waiting[0].request] <= now and len(active) < engine.max_sequences:
            if sum(map(room, active)) + room(waiting[0]) > engine.kv_tokens:
                break
            each = waiting.pop(0)
            each.to_compute = each.prompt + each.given
            if math.isnan(start[each.request]):
                start[each.request] = now
            active.append(each)
        decoding = [each for each in active if not each.to_compute]
        tokens = sum(each.prompt + each.given for each in decoding)
        left, chunks = engine.tokens_per_step - len(decoding), 0
        finished = []
        for each in active:
            if each.to_compute and left > 0:
                chunk = min(left, each.to_compute)
                left, chunks, each.to_compute = left - chunk, chunks + chunk, each.to_compute - chunk
                if not each.to_compute:
                    finished.append(each)
        now += engine.step_base + engine.prefill_token * chunks + engine.decode_sequence * len(decoding)
        now += engine.context_token * tokens
        for each in finished + decoding:
            each.given += 1
            if math.isnan(first[each.request]):
                first[each.request] = now
            if each.given >= each.output:
                end[each.request] = now
                active.remove(each)
    return list(zip(start, first, end, strict=True))


def _times(found: Answered) -> Times:
    return list(zip(found.starts.tolist(), found.first_tokens.tolist(), found.ends.tolist(), strict=True))


lengths = st.tuples(st.sampled_from([0, 1, 2, 5, 9, 30]), st.sampled_from([0, 1, 2, 3, 8, 40]))
engines = st.builds(
    Engine,
    step_base=st.sampled_from([1.0, 7.0]),
    prefill_token=st.sampled_from([0.0, 1.0]),
    decode_sequence=st.sampled_from([0.0, 2.0]),
    context_token=st.sampled_from([0.0, 1.0, 0.25]),
    max_sequences=st.integers(1, 6),
    tokens_per_step=st.integers(1, 20),
    kv_tokens=st.integers(70, 160),
    admission=st.sampled_from(["reserve", "paged"]),
)


@given(engines, st.lists(st.tuples(st.sampled_from([0, 1, 10, 100, 500]), lengths), max_size=25))
@example(Engine(1.0, 0.0, 0.0, 0.0, 4, 20, 70, "paged"), [(0, (30, 40)), (0, (30, 40)), (0, (5, 40))])
def test_each_request_gets_its_tokens_as_in_a_loop_over_sequences(
    engine: Engine, asked: list[tuple[int, tuple[int, int]]]
) -> None:
    arrivals = [float(at) for at in accumulate(gap for gap, _ in asked)]
    requests = Requests(arrivals, [each[0] for _, each in asked], [each[1] for _, each in asked])
    assert _times(answer(engine, requests)) == _slowly(engine, requests)


ENGINE = Engine(10.0, 1.0, 2.0, 0.5, max_sequences=2, tokens_per_step=8, kv_tokens=100)


def test_one_request_by_hand() -> None:
    found = answer(ENGINE, Requests([5.0], [12], [3]))
    # two chunks of 8 and 4 tokens, then two tokens with 13 and 14 tokens in the cache
    first = 5 + (10 + 8) + (10 + 4)
    assert _times(found) == [(5.0, first, first + (10 + 2 + 6.5) + (10 + 2 + 7))]
    assert found.busy == found.ends[0] - 5


def test_a_request_that_is_larger_than_the_cache_is_refused() -> None:
    with pytest.raises(ValueError, match="a request has 101 tokens, and the KV cache has room for 100"):
        answer(ENGINE, Requests([0.0], [60], [41]))


def test_paged_memory_holds_more_sequences_and_computes_some_again() -> None:
    requests = Requests([0.0] * 4, [20] * 4, [60] * 4)
    reserve = answer(replace(ENGINE, max_sequences=4), requests)
    paged = answer(replace(ENGINE, max_sequences=4, admission="paged"), requests)
    assert reserve.recomputed == 0
    assert paged.recomputed > 0
    assert paged.starts[-1] < reserve.starts[-1]
