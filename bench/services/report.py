"""The predictions of the serving simulator beside what was measured, run by run.

A prediction uses the profile, the closed loops side by side and the engine's single iterations, and the arrivals of the
run that it predicts: nothing else of that run. `predict` writes a scenario as users do, so that anybody can repeat it.
"""

import itertools
import json
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from orion.bench import raw_data
from orion.bench.samples import percentile
from orion.bench.services import scenario
from orion.bench.services.scenario import Scenario, shares_of
from orion.errors import NotFound
from orion.simulation import whole_files

P50_WITHIN, P99_WITHIN = 0.10, 0.15
Simulate = Callable[[Path], dict[str, list[dict[str, float]]]]
"""From a scenario file to the requests of each service: arrival, first token and end in seconds."""


@dataclass(frozen=True)
class Compared:
    """One figure of one run, in milliseconds."""

    run: str
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


class Measured:
    """The runs of an output folder."""

    def __init__(self, folder: Path) -> None:
        """Read the scenario; `NotFound` if the folder is no output of `orion bench services`."""
        if not (folder / "scenario.yaml").is_file():
            raise NotFound(f"{folder} holds no output of `orion bench services`: there is no scenario.yaml")
        self.folder = folder
        self.wanted: Scenario = scenario.read(folder / "scenario.yaml")

    def runs(self, part: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield name and content of the complete runs of a part."""
        for path in sorted((self.folder / "runs" / part).glob("*.json.gz")):
            found = raw_data.read(path)
            if not found.get("error"):
                yield path.name.removesuffix(".json.gz"), found

    def times_ms(self, service: str, share: int | None, spaced: bool = True) -> dict[int, tuple[float, float]]:
        """Return median and p99 of a batch by its size; share None: without MPS."""
        for _, found in self.runs("profile"):
            if found["service"] == service and found["share"] == share:
                return {
                    point["batch"]: (percentile(point["times_us"], 50) / 1e3, percentile(point["times_us"], 99) / 1e3)
                    for point in found["points"]
                    if bool(point["gap_ms"]) == spaced
                }
        raise NotFound(f"{self.folder} has no profile of {service} at share {share}")

    def slowdown(self, way: str, pair: Sequence[str], place: int) -> float:
        """Return how many times longer a full batch of one service takes beside one of the other, in parts."""
        shares = shares_of(way)
        for _, found in self.runs("beside"):
            if found["way"] == way and found["pair"] == list(pair) and shares is not None:
                ends = found["loops"][0]["ends_us"][place]
                period: float = statistics.median(later - earlier for earlier, later in itertools.pairwise(ends)) / 1e3
                alone = self.times_ms(pair[place], shares[place], spaced=False)
                return float(max(1.0, period / alone[found["loops"][0]["batches"][place]][0]))
        return 1.0


def pair_scenario(measured: Measured, run: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the scenario of a run of a pair; writes the files of arrivals into `folder`."""
    pair, way = run["pair"], run["way"]
    shares, services, assigned = shares_of(way), [], []
    for number, each in enumerate(run["services"]):
        name, wanted = each["service"], measured.wanted.services[each["service"]]
        instants = itertools.accumulate(each["gaps_us"])
        file = folder / f"{name}.csv"
        file.write_text("arrival_s\n" + "".join(f"{instant / 1e6:.6f}\n" for instant in instants))
        times = measured.times_ms(name, None if shares is None else shares[number])
        services.append({
            "name": name, "objective": {"latency": f"{wanted.objective_ms:g}ms", "quantile": 0.99},
            "latency": [
                {"batch": batch, "smShare": 1 if shares is None else shares[number] / 100,
                 "medianNs": round(p50 * 1e6), "p99Ns": round(p99 * 1e6)}
                for batch, (p50, p99) in times.items()
            ],
            "arrivals": {"file": str(file)},
        })  # fmt: skip
        assigned.append({"name": name, "batch": wanted.batch, "maxDelay": f"{wanted.max_delay_ms:g}ms"})
    if shares is None:
        plan = [{"gpu": "g0", "way": "turns", "share": 100, "order": way, "services": assigned}]
        return {"gpus": [{"name": "g0"}], "services": services, "plan": plan}
    plan = [
        {"gpu": "g0", "way": "part", "share": share, "order": "fifo", "services": [each]}
        for share, each in zip(shares, assigned, strict=True)
    ]
    slow = {pair[place]: {pair[1 - place]: round(measured.slowdown(way, pair, place), 4)} for place in (0, 1)}
    return {"gpus": [{"name": "g0"}], "services": services, "plan": plan, "slowdowns": slow}


def engine_constants(measured: Measured) -> dict[str, float]:
    """Return the engine's four constants in microseconds, by least squares of relative errors."""
    import numpy as np

    for name, found in measured.runs("engine"):
        if name == "iterations":
            medians = np.array([statistics.median(times) for times in found["times_us"]])
            repeat = len(found["times_us"][0])
            rows = [
                (1.0, tokens, sequences, sequences * (position + repeat / 2))
                for tokens, sequences, position in found["points"]
            ]
            weighted = np.array(rows) / medians[:, None]
            constants, *_ = np.linalg.lstsq(weighted, np.ones(len(medians)), rcond=None)
            if constants[3] < 0:  # no iteration can take less time because of a longer context
                three, *_ = np.linalg.lstsq(weighted[:, :3], np.ones(len(medians)), rcond=None)
                constants = [*three, 0.0]
            names = ("stepBase", "prefillToken", "decodeSequence", "contextToken")
            return {key: max(0.0, float(each)) for key, each in zip(names, constants, strict=True)}
    raise NotFound(f"{measured.folder} has no run engine/iterations")


def engine_scenario(measured: Measured, run: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the scenario of a run of the engine; writes the file of arrivals into `folder`."""
    settings = measured.wanted.engine
    rows = "".join(f"{arrival:.6f},{prompt},{output}\n" for arrival, prompt, output in run["requests"])
    file = folder / "engine.csv"
    file.write_text("arrival_s,prompt_tokens,output_tokens\n" + rows)
    constants = {name: f"{each:.4f}us" for name, each in engine_constants(measured).items()}
    limits = {
        "maxSequences": settings.max_sequences, "tokensPerStep": settings.tokens_per_step,
        "kvTokens": settings.kv_tokens, "admission": "reserve",
    }  # fmt: skip
    return {
        "gpus": [{"name": "g0"}],
        "services": [{
            "name": "engine", "objective": {"timeToFirstToken": "1s", "timePerOutputToken": "100ms"},
            "engine": {**constants, **limits}, "arrivals": {"file": str(file)},
        }],
        "plan": [{"gpu": "g0", "share": 100, "services": [{"name": "engine"}]}],
    }  # fmt: skip


def simulate(path: Path) -> dict[str, list[dict[str, float]]]:
    """Simulate a scenario file, and return the requests of each service."""
    from orion.simulation.serving import reading, simulating

    setting = reading.read(path)
    assert setting.plan is not None
    return {
        found.service.name: [
            {"arrival": arrival / 1e9, "first": first / 1e9, "end": end / 1e9}
            for arrival, first, end in zip(
                found.requests.arrivals.tolist(), found.first_tokens.tolist(), found.ends.tolist(), strict=True
            )
        ]
        for found in simulating.simulate(setting, setting.plan).services
    }


def predict(
    measured: Measured, run: dict[str, Any], make: Callable[..., dict[str, Any]], simulator: Simulate
) -> dict[str, list[dict[str, float]]]:
    """Predict a run from a scenario that `make` writes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scenario.yaml"
        path.write_text(json.dumps(make(measured, run, Path(folder))))
        return simulator(path)


def compare(folder: Path, simulator: Simulate = simulate) -> list[Compared]:
    """Compare all complete runs of pairs and of the engine's loads."""
    measured, found = Measured(folder), []
    for name, run in measured.runs("pairs"):
        predicted = predict(measured, run, pair_scenario, simulator)
        for each in run["services"]:
            if not each["unserved"]:
                requests = predicted[each["service"]]
                latencies = [1e3 * (request["end"] - request["arrival"]) for request in requests]
                found.append(_compared(name, each["service"], "latency", latencies_ms(each), latencies))
    for name, run in measured.runs("engine"):
        if name.startswith("load-") and len(run["served"]) == len(run["requests"]):
            found += _engine(name, run, predict(measured, run, engine_scenario, simulator)["engine"])
    return found


def latencies_ms(service: dict[str, Any]) -> list[float]:
    """Return the measured latency of each served request of a service of a run."""
    ends = [end for _, end, size in service["batches_us"] for _ in range(size)]
    return [(end - arrival) / 1e3 for end, arrival in zip(ends, itertools.accumulate(service["gaps_us"]), strict=False)]


def _engine(name: str, run: dict[str, Any], predicted: list[dict[str, float]]) -> list[Compared]:
    arrivals = [arrival * 1e6 for arrival, _, _ in run["requests"]]
    more = [output - 1 for _, _, output in run["requests"]]
    first = [(end - arrival) / 1e3 for end, arrival in zip(run["first_us"], arrivals, strict=True)]
    each = [
        (end - begin) / 1e3 / gaps
        for end, begin, gaps in zip(run["end_us"], run["first_us"], more, strict=True)
        if gaps
    ]
    expected_first = [1e3 * (request["first"] - request["arrival"]) for request in predicted]
    expected = [
        1e3 * (request["end"] - request["first"]) / gaps for request, gaps in zip(predicted, more, strict=True) if gaps
    ]
    return [
        _compared(name, "engine", "ttft", first, expected_first),
        _compared(name, "engine", "tpot", each, expected),
    ]


def _compared(run: str, service: str, figure: str, measured: Sequence[float], predicted: Sequence[float]) -> Compared:
    figures = [percentile(values, rank) for rank in (50, 99) for values in (measured, predicted)]
    return Compared(run, service, figure, *figures)


def best_ways(measured: Measured) -> dict[str, dict[str, float]]:
    """Return, for each pair and load, the score of each way: the worst service's p99 over its objective."""
    scores: dict[str, dict[str, float]] = {}
    for _, run in measured.runs("pairs"):
        score = max(
            float("inf") if each["unserved"] else percentile(latencies_ms(each), 99) / each["objective_ms"]
            for each in run["services"]
        )
        scores.setdefault(f"{run['pair'][0]} + {run['pair'][1]} at {run['load']:g}", {})[run["way"]] = score
    return scores


def write(folder: Path) -> Path:
    """Write `report.md` and `compared.json` into the folder; return the path of the report."""
    measured, compared = Measured(folder), compare(folder)
    within = sum(each.is_within for each in compared)
    lines = [
        f"# Services on one GPU: {measured.wanted.name}", "",
        f"{within} of {len(compared)} figures have p50 within {P50_WITHIN:.0%} and p99 within {P99_WITHIN:.0%}.", "",
        "| run | service | figure | p50 measured | predicted | p99 measured | predicted | within |",
        "|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    lines += [
        f"| {each.run} | {each.service} | {each.figure} | {each.measured_p50:.2f} | "
        f"{each.predicted_p50:.2f} ({each.predicted_p50 / each.measured_p50 - 1:+.0%}) | {each.measured_p99:.2f} | "
        f"{each.predicted_p99:.2f} ({each.predicted_p99 / each.measured_p99 - 1:+.0%}) | "
        f"{'yes' if each.is_within else 'no'} |"
        for each in compared
    ]
    lines += ["", "The worst service's p99 over its objective, by way:", ""]
    for name, ways in best_ways(measured).items():
        lines.append(f"- {name}: " + ", ".join(f"{way} {score:.3f}" for way, score in sorted(ways.items())))
    whole_files.write(folder / "compared.json", [json.dumps([asdict(each) for each in compared])])
    whole_files.write(folder / "report.md", [line + "\n" for line in lines])
    return folder / "report.md"
