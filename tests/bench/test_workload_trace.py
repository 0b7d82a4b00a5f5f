"""`EventTrace`: when the GPU worked for a process, from events and the times at which launch calls returned."""

import time

import pytest

from orion.bench.workload import EventTrace


class FakeGpu:
    """A GPU whose events complete at the given times, in order."""

    def __init__(self, *completions: float) -> None:
        self.completions = list(completions)

    def record(self) -> float:
        return self.completions.pop(0)

    @staticmethod
    def between(begin: float, end: float) -> float:
        return end - begin


def anchored(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> EventTrace:
    gpu.completions = [10.0] * 5 + gpu.completions
    trace = EventTrace(gpu.record, gpu.between)
    monkeypatch.setattr(time, "monotonic", lambda: 10.0)
    trace.anchor(lambda: None)
    monkeypatch.setattr(time, "monotonic", lambda: clock.pop(0))
    trace.on = True
    return trace


def test_queued_pieces_follow_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = anchored(FakeGpu(11.0, 11.5, 12.0), monkeypatch, [10.75, 10.76, 10.77])
    for _ in range(3):
        trace.mark()
    assert trace.spans() == [(10.75, 11.0), (11.0, 11.5), (11.5, 12.0)]


def test_a_piece_does_not_include_the_wait_at_the_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = anchored(FakeGpu(11.0, 14.25), monkeypatch, [10.75, 14.0])
    trace.mark()
    trace.mark()
    assert trace.spans() == [(10.75, 11.0), (14.0, 14.25)]


def test_a_trace_that_is_off_records_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = anchored(FakeGpu(), monkeypatch, [])
    trace.on = False
    trace.mark()
    assert trace.spans() == []


def test_spans_are_returned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = anchored(FakeGpu(11.0), monkeypatch, [10.5])
    trace.mark()
    assert len(trace.spans()) == 1
    assert trace.spans() == []
