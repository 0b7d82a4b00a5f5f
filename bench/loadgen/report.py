"""The figures of a run, as the JSON object `orion.loadgen/1` and as sentences about what went wrong."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from orion.bench.loadgen.recording import UNANSWERED, Recording
from orion.bench.samples import percentile

SCHEMA = "orion.loadgen/1"
LATE_MS = 10.0
""" If more than 1 % of the requests are sent later than this, the report says that the schedule was not kept. """
_RANKS = {"p50": 50.0, "p95": 95.0, "p99": 99.0, "max": 100.0}


def figures(recording: Recording, objective_s: float | None, *, is_stream: bool, is_stopped: bool) -> dict[str, Any]:
    """Return the figures of a run; null where there is no value.

    Args:
        recording: the requests.
        objective_s: the latency that a request must not exceed; None: no request can miss it.
        is_stream: whether the answers are streams.
        is_stopped: whether the run was stopped before its end.
    """
    rows = range(len(recording))
    late = [recording.sent_s[row] - recording.due_s[row] for row in rows]
    late = [each for each in late if each == each]  # NaN: stopped before it was sent
    statuses = Counter(str(status) for status in recording.status)
    return {
        "schema": SCHEMA,
        "requests": len(recording),
        "missed": None if objective_s is None else sum(_is_missed(recording, row, objective_s) for row in rows),
        "errors": sum(map(recording.is_error, rows)),
        "behind_ms": _quantile(late, 99.0),
        "behind_max_ms": _quantile(late, 100.0),
        "latency_ms": _spread([recording.latency_s(row) for row in rows]),
        "ttft_ms": _spread([recording.first_token_s(row) for row in rows]) if is_stream else None,
        "tpot_ms": _spread([recording.per_token_s(row) for row in rows]) if is_stream else None,
        "objective_ms": None if objective_s is None else 1e3 * objective_s,
        "statuses": dict(sorted(statuses.items())),
        "output_tokens": sum(recording.tokens) if is_stream else None,
        "stopped": is_stopped,
    }


def _is_missed(recording: Recording, row: int, objective_s: float) -> bool:
    if recording.is_error(row):
        return True
    latency_s = recording.latency_s(row)
    if latency_s is None:  # the run was stopped before the answer, and that may have been too late already
        latency_s = recording.stopped_s - recording.due_s[row]
    return latency_s > objective_s


def _spread(times_s: Sequence[float | None]) -> dict[str, float | None]:
    there = sorted(each for each in times_s if each is not None)
    return {name: _quantile(there, rank) for name, rank in _RANKS.items()}


def _quantile(times_s: Sequence[float], rank: float) -> float | None:
    return round(1e3 * percentile(times_s, rank), 6) if times_s else None


def sentences(recording: Recording, found: dict[str, Any], reasons: Mapping[str, str]) -> list[str]:
    """Return what the user must know beside the figures, one sentence each.

    Args:
        recording: the requests.
        found: their figures.
        reasons: for each status of a failed request, what the first such error or answer said.
    """
    said = []
    if found["errors"]:
        failed = Counter(str(recording.status[row]) for row in range(len(recording)) if recording.is_error(row))
        kinds = ", ".join(
            f"{count:,} x {status}" + (f" ({reasons[status]})" if reasons.get(status) else "")
            for status, count in sorted(failed.items())
        )
        said.append(f"{found['errors']:,} of {found['requests']:,} requests failed: {kinds}")
    if (found["behind_ms"] or 0) > LATE_MS:
        said.append(
            f"loadgen did not keep its schedule: it sent 1 % of the requests more than {found['behind_ms']:.0f} ms "
            f"late (at most {found['behind_max_ms']:.0f} ms), and the latencies contain this delay; give a lower "
            "rate, or use a machine with more free CPU time"
        )
    if waiting := found["statuses"].get(UNANSWERED):
        said.append(f"the run was stopped, and {waiting:,} requests have no answer: the latencies leave them out")
    return said
