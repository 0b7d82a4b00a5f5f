"""The predictions of the serving simulator beside what was measured, run by run."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from orion.bench.samples import percentile
from orion.bench.services import predicting
from orion.bench.services.measured import Measured, latencies_ms

P50_WITHIN, P99_WITHIN = 0.10, 0.15


@dataclass(frozen=True)
class Compared:
    """One figure of one run, in milliseconds."""

    run: str
    way: str
    """`slices`, `edf`, `part-A-B`, or `engine`."""
    service: str
    figure: str
    """`latency`, `ttft` or `tpot`."""
    measured_p50: float
    predicted_p50: float
    measured_p99: float
    predicted_p99: float

    @property
    def is_within(self) -> bool:
        """Return whether both percentiles are as near as the targets ask."""
        return (
            abs(self.predicted_p50 / self.measured_p50 - 1) <= P50_WITHIN
            and abs(self.predicted_p99 / self.measured_p99 - 1) <= P99_WITHIN
        )


def compare(measured: Measured, simulator: predicting.Simulate = predicting.simulate) -> list[Compared]:
    """Compare all complete runs of pairs and of the engine's loads."""
    found = []
    for name, run in measured.runs("pairs"):
        predicted = predicting.pair(measured, run, simulator)
        for each in run["services"]:
            if not each["unserved"]:
                requests = predicted[each["service"]]
                latencies = [1e3 * (end - begin) for end, begin in zip(requests.ends, requests.arrivals, strict=True)]
                found.append(_compared(name, run["way"], each["service"], "latency", latencies_ms(each), latencies))
    found.sort(key=lambda each: each.run)
    for name, run in measured.runs("engine"):
        if name.startswith("load-") and len(run["served"]) == len(run["requests"]):
            found += _engine(name, run, predicting.engine(measured, run, simulator))
    return found


def _engine(name: str, run: dict[str, Any], predicted: predicting.Predicted) -> list[Compared]:
    arrivals = [arrival * 1e3 for arrival, _, _ in run["requests"]]
    firsts, ends = ([each / 1e3 for each in run[key]] for key in ("first_us", "end_us"))
    expected = [
        [1e3 * each for each in times] for times in (predicted.arrivals, predicted.first_tokens, predicted.ends)
    ]
    gaps = [output - 1 for _, _, output in run["requests"]]
    return [
        _compared(name, "engine", "engine", "ttft", _between(arrivals, firsts), _between(expected[0], expected[1])),
        _compared(
            name, "engine", "engine", "tpot", _between(firsts, ends, gaps), _between(expected[1], expected[2], gaps)
        ),
    ]


def _between(begins: Sequence[float], ends: Sequence[float], parts: Sequence[int] | None = None) -> list[float]:
    """Return the times between begins and ends, each divided into so many parts; none where there is no part."""
    divided = zip(begins, ends, parts or [1] * len(begins), strict=True)
    return [(end - begin) / count for begin, end, count in divided if count]


def _compared(
    run: str, way: str, service: str, figure: str, measured: Sequence[float], predicted: Sequence[float]
) -> Compared:
    figures = [percentile(values, rank) for rank in (50, 99) for values in (measured, predicted)]
    return Compared(run, way, service, figure, *figures)


def scores(measured: Measured) -> dict[tuple[str, str, float], dict[str, float]]:
    """Return, for each pair and load, the score of each way: the worst service's p99 over its objective."""
    found: dict[tuple[str, str, float], dict[str, float]] = {}
    for _, run in measured.runs("pairs"):
        score = max(
            float("inf") if each["unserved"] else percentile(latencies_ms(each), 99) / each["objective_ms"]
            for each in run["services"]
        )
        found.setdefault((*run["pair"], run["load"]), {})[run["way"]] = score
    return found
