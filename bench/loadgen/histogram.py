"""The HdrHistogram log of a run: one line of format 1.2 for each second, which the tools of HdrHistogram read.

A line holds the requests that were due in its second, so that a server that stands still shows in the seconds in which
it did. Latencies have no tag; for streams, the tag `ttft` marks the times to the first token, and `tpot` the times per
token. Values are nanoseconds with three digits; the column Interval_Max is in milliseconds. Only this module needs the
library `hdrhistogram`, which encodes the histograms.
"""

import time
from collections.abc import Callable, Iterator

from hdrh.histogram import HdrHistogram

from orion.bench.loadgen.recording import Recording

_HIGHEST_NS = 24 * 3600 * 10**9
_DIGITS = 3


def lines(recording: Recording, began_s: float, *, is_stream: bool) -> Iterator[str]:
    """Yield the lines of the log.

    Args:
        recording: the requests.
        began_s: when the run began, in seconds since 1970.
        is_stream: whether the answers are streams.
    """
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(began_s))
    yield "#[Latencies of orion loadgen, in nanoseconds from the scheduled send]\n"
    yield "#[Histogram log format version 1.2]\n"
    yield f"#[StartTime: {began_s:.3f} (seconds since epoch), {moment}]\n"
    yield f"#[BaseTime: {began_s:.3f} (seconds since epoch)]\n"
    yield '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"\n'
    measures: dict[str, Callable[[int], float | None]] = {"": recording.latency_s}
    if is_stream:
        measures |= {"Tag=ttft,": recording.first_token_s, "Tag=tpot,": recording.per_token_s}
    rows: list[int] = []
    for row in range(len(recording)):
        if rows and int(recording.due_s[row]) != int(recording.due_s[rows[0]]):
            yield from _second(recording, rows, measures)
            rows = []
        rows.append(row)
    if rows:
        yield from _second(recording, rows, measures)


def _second(recording: Recording, rows: list[int], measures: dict[str, Callable[[int], float | None]]) -> Iterator[str]:
    """Yield one line for each measure that has a value in this second."""
    for tag, measure in measures.items():
        values_ns = [max(1, round(1e9 * found)) for row in rows if (found := measure(row)) is not None]
        if values_ns:
            histogram = HdrHistogram(1, _HIGHEST_NS, _DIGITS)
            for value_ns in values_ns:
                histogram.record_value(min(value_ns, _HIGHEST_NS))
            begin_s = int(recording.due_s[rows[0]])
            yield f"{tag}{begin_s:.3f},1.000,{max(values_ns) / 1e6:.3f},{histogram.encode().decode()}\n"
