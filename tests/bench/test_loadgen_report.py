"""Figures, log and HdrHistogram log of requests whose times are given."""

import math
from pathlib import Path

import pytest

from orion.bench.loadgen.events import Completion
from orion.bench.loadgen.recording import CLOSED, TIMEOUT, UNANSWERED, Recording
from orion.bench.loadgen.report import figures, sentences


def _recording(*rows: tuple[float, float, float, int | str]) -> Recording:
    recording = Recording()
    for due_s, sent_s, end_s, status in rows:
        row = recording.begin(due_s)
        recording.sent_s[row] = sent_s
        if status != UNANSWERED:
            recording.end(row, end_s, status)
    return recording


def _streamed(first_s: float, last_s: float, tokens: int) -> Completion:
    completion = Completion()
    completion.first_s, completion.last_s, completion.chunks = first_s, last_s, tokens
    return completion


MIXED = ((0.0, 0.0, 0.1, 200), (1.0, 1.5, 2.0, 204), (2.0, 2.0, 2.001, 500), (3.0, 3.0, 33.0, TIMEOUT),
         (4.0, 4.0, 4.0, CLOSED), (5.0, 5.0, math.nan, UNANSWERED))  # fmt: skip


def test_latencies_count_from_the_schedule_and_keep_timeouts() -> None:
    found = figures(_recording(*MIXED), 0.5, is_stream=False, is_stopped=True)
    assert (found["requests"], found["errors"], found["missed"]) == (6, 3, 4)
    assert found["latency_ms"]["p50"] == 1000  # of 100, 1,000 and 30,000
    assert found["latency_ms"]["max"] == 30_000
    assert found["behind_max_ms"] == 500
    assert found["statuses"] == {"200": 1, "204": 1, "500": 1, CLOSED: 1, TIMEOUT: 1, UNANSWERED: 1}
    assert (found["ttft_ms"], found["tpot_ms"], found["stopped"]) == (None, None, True)


@pytest.mark.parametrize(("stopped_s", "missed"), [(5.4, 0), (5.6, 1)])
def test_a_request_that_waited_too_long_when_the_run_was_stopped_is_missed(stopped_s: float, missed: int) -> None:
    recording = _recording((5.0, 5.0, math.nan, UNANSWERED))
    recording.stopped_s = stopped_s
    assert figures(recording, 0.5, is_stream=False, is_stopped=True)["missed"] == missed


def test_what_has_no_value_is_null() -> None:
    nothing = {"p50": None, "p95": None, "p99": None, "max": None}
    found = figures(Recording(), None, is_stream=True, is_stopped=False)
    assert (found["requests"], found["errors"], found["missed"], found["behind_ms"]) == (0, 0, None, None)
    assert found["latency_ms"] == found["ttft_ms"] == found["tpot_ms"] == nothing
    assert figures(Recording(), 1.0, is_stream=False, is_stopped=False)["missed"] == 0


def test_times_of_tokens_count_from_the_schedule() -> None:
    recording = _recording((1.0, 1.2, 0.0, UNANSWERED), (2.0, 2.0, 0.0, UNANSWERED), (3.0, 3.0, 0.0, UNANSWERED))
    recording.end(0, 5.0, 200, _streamed(1.5, 4.5, 4))
    recording.end(1, 5.0, 200, _streamed(2.25, 2.25, 1))
    recording.end(2, 33.0, TIMEOUT, Completion())
    found = figures(recording, None, is_stream=True, is_stopped=False)
    assert found["ttft_ms"]["p50"] == 500
    assert found["ttft_ms"]["max"] == 30_000  # the request that timed out waited at least so long
    assert found["tpot_ms"] == dict.fromkeys(("p50", "p95", "p99", "max"), 1000)
    assert found["output_tokens"] == 5


def test_sentences_name_errors_and_a_schedule_that_was_not_kept() -> None:
    recording = _recording(*MIXED)
    said = sentences(recording, figures(recording, None, is_stream=False, is_stopped=True), {CLOSED: "reset by peer"})
    assert said[0] == "3 of 6 requests failed: 1 x 500, 1 x closed (reset by peer), 1 x timeout"
    assert "loadgen did not keep its schedule: it sent 1 % of the requests more than 475 ms late" in said[1]
    assert "and 1 requests have no answer" in said[2]
    fine = _recording((0.0, 0.01, 0.1, 200))
    assert sentences(fine, figures(fine, None, is_stream=False, is_stopped=False), {}) == []


def test_the_log_has_a_line_for_each_request() -> None:
    recording = _recording((0.0, 0.0004, 0.1, 200), (1.0, 1.0, math.nan, UNANSWERED))
    assert "".join(recording.csv(has_tokens=False)) == (
        "due_s,sent_s,end_s,status\n0.000000000,0.000400000,0.100000000,200\n1.000000000,1.000000000,,unanswered\n"
    )
    recording.end(1, 3.0, 200, _streamed(1.5, 2.5, 3))
    lines = list(recording.csv(has_tokens=True))
    assert lines[0] == "due_s,sent_s,end_s,status,first_token_s,last_token_s,tokens\n"
    assert lines[1].endswith("200,,,0\n")
    assert lines[2].endswith("200,1.500000000,2.500000000,3\n")


def test_the_histogram_log_is_read_by_the_library_of_hdrhistogram(tmp_path: Path) -> None:
    pytest.importorskip("hdrh", reason="hdrhistogram, of the extra `plan`, is not installed")
    from hdrh.histogram import HdrHistogram
    from hdrh.log import HistogramLogReader

    from orion.bench.loadgen import histogram

    rows = [(second + part / 10, 0.0, second + part / 10 + 0.001 * (second + 1), 200) for second in (0, 1, 3)
            for part in range(10)]  # fmt: skip
    recording = _recording(*rows, (3.95, 3.95, 100_000.0, TIMEOUT))
    recording.end(0, 1.0, 200, _streamed(0.2, 0.8, 4))
    path = tmp_path / "run.hlog"
    path.write_text("".join(histogram.lines(recording, 1.7e9, is_stream=True)))
    reader = HistogramLogReader(str(path), HdrHistogram(1, 3600 * 10**9, 3))
    found = []
    while (each := reader.get_next_interval_histogram()) is not None:
        found.append((each.get_tag(), each.get_start_time_stamp() / 1000 - 1.7e9, each.get_total_count(), each))
    reader.close()
    assert [each[:3] for each in found] == [
        (None, 0.0, 10), ("ttft", 0.0, 1), ("tpot", 0.0, 1), (None, 1.0, 10), (None, 3.0, 11), ("ttft", 3.0, 1)
    ]  # fmt: skip
    assert found[3][3].get_value_at_percentile(50) == pytest.approx(2e6, rel=1e-3)
    assert found[1][3].get_max_value() == pytest.approx(2e8, rel=1e-3)
    assert found[2][3].get_max_value() == pytest.approx(2e8, rel=1e-3)
    assert found[4][3].get_max_value() == pytest.approx(86_400e9, rel=1e-3)  # a histogram holds a day
