"""Reads an output of `orion bench services`, and works out the constants of the GPU that predictions need.

Every constant comes from the profile, the closed loops side by side, or the engine's single iterations. None comes from
a run that is predicted.
"""

import itertools
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from orion.bench import raw_data
from orion.bench.samples import percentile
from orion.bench.services import scenario
from orion.bench.services.scenario import Scenario, shares_of
from orion.errors import NotFound


@dataclass(frozen=True)
class Slices:
    """How the GPU alternates between two processes, in milliseconds."""

    slice_ms: float
    change_ms: float


class Measured:
    """The runs of an output folder."""

    def __init__(self, folder: Path) -> None:
        """Read the scenario; `NotFound` if the folder is no output of `orion bench services`."""
        if not (folder / "scenario.yaml").is_file():
            raise NotFound(f"{folder} holds no output of `orion bench services`: there is no scenario.yaml")
        self.folder = folder
        self.wanted: Scenario = scenario.read(folder / "scenario.yaml")

    def runs(self, part: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield name and content of the complete runs of a part.

        The arrivals of a pair at a load are the same in all ways. A packed file has them in the run in slices only.
        """
        arrivals: dict[tuple[Any, ...], list[int]] = {}
        paths = sorted((self.folder / "runs" / part).glob("*.json.gz"))
        for path in sorted(paths, key=lambda path: not path.name.endswith("-slices.json.gz")):
            found = raw_data.read(path)
            if found.get("error"):
                continue
            if part == "pairs":
                for each in found["services"]:
                    key = (*found["pair"], found["load"], each["service"])
                    each["gaps_us"] = arrivals.setdefault(key, each.get("gaps_us", []))
            yield path.name.removesuffix(".json.gz"), found

    @cached_property
    def _profiles(self) -> dict[tuple[str, int | None], list[dict[str, Any]]]:
        return {(found["service"], found["share"]): found["points"] for _, found in self.runs("profile")}

    @cached_property
    def _beside(self) -> dict[tuple[str, tuple[str, ...]], dict[str, Any]]:
        return {(found["way"], tuple(found["pair"])): found["loops"][0] for _, found in self.runs("beside")}

    def times_ms(self, service: str, share: int | None, spaced: bool = True) -> dict[int, tuple[float, float]]:
        """Return median and p99 of a batch by its size; share None: without MPS.

        Args:
            service: its name.
            share: of the MPS part in percent.
            spaced: after a random gap; False: back to back.
        """
        if (service, share) not in self._profiles:
            raise NotFound(f"{self.folder} has no profile of {service} at share {share}")
        return {
            point["batch"]: (percentile(point["times_us"], 50) / 1e3, percentile(point["times_us"], 99) / 1e3)
            for point in self._profiles[service, share]
            if bool(point["gap_ms"]) == spaced
        }

    def slowdown(self, way: str, pair: Sequence[str], place: int) -> float:
        """Return how many times longer a full batch of one service takes while the other one runs full batches."""
        shares, loop = shares_of(way), self._beside.get((way, tuple(pair)))
        if shares is None or loop is None:
            return 1.0
        alone = self.times_ms(pair[place], shares[place], spaced=False)[loop["batches"][place]][0]
        return max(1.0, _period_ms(loop, place) / alone)

    @cached_property
    def slices(self) -> Slices:
        """Slice and change of two processes without MPS, from the closed loops of the pairs.

        While the long batch of a pair runs once, the short one runs `turns` times, and the GPU changes twice a turn.
        What the long batch's period has beside the batches themselves is the changes. Where the long batch takes
        several turns, the short one's period is its own batch, a slice, and two changes. Each constant is the mean over
        the pairs.
        """
        changes, waits = [], []
        for (way, pair), loop in self._beside.items():
            if way != "slices":
                continue
            own = [
                self.times_ms(name, None, spaced=False)[batch][0]
                for name, batch in zip(pair, loop["batches"], strict=True)
            ]
            (short, short_ms, many), (long, long_ms, few) = sorted(
                (_period_ms(loop, place), own[place], len(loop["ends_us"][place])) for place in (0, 1)
            )
            turns = round(many / few)
            changes.append((long - long_ms - turns * short_ms) / (2 * turns))
            if turns > 1:
                waits.append(short - short_ms)
        if not changes or not waits:
            raise NotFound(f"{self.folder} has no closed loops in slices, or none with a batch longer than a slice")
        change_ms = statistics.mean(changes)
        slice_ms = statistics.mean(waits) - 2 * change_ms
        if change_ms < 0 or slice_ms <= 0:
            raise NotFound(
                f"{self.folder} has no slices in its closed loops (a slice of {slice_ms:.3g} ms, a change of "
                f"{change_ms:.3g} ms): measure on a GPU that does nothing else"
            )
        return Slices(slice_ms, change_ms)

    @cached_property
    def engine_us(self) -> dict[str, float]:
        """The engine's four constants in microseconds.

        An iteration with tokens of prompts executes a second graph, so its time has a step at the first token, and the
        simulator's formula has none. `stepBase` and `decodeSequence` are therefore the straight line through the
        iterations without prompts, and `prefillToken` is what all chunks of prompts of the scenario's lengths add to
        it, for each token of these prompts. The engine reads whole slots, so `contextToken` is 0.
        """
        found = dict(self.runs("engine")).get("iterations")
        if found is None:
            raise NotFound(f"{self.folder} has no run engine/iterations")
        medians = [statistics.median(times) for times in found["times_us"]]
        timed = list(zip(found["points"], medians, strict=True))
        sequences, times = zip(*((count, time) for (tokens, count, _), time in timed if not tokens), strict=True)
        slope, base = statistics.linear_regression(sequences, times)
        multiple = self.wanted.engine.chunk_multiple
        added: dict[int, list[float]] = {}
        for (tokens, count, _), time in timed:
            if tokens and count:
                added.setdefault(_padded(tokens, multiple), []).append(time - base - slope * count)
        spent = total = 0.0
        for prompt in range(self.wanted.engine.prompt[0], self.wanted.engine.prompt[1] + 1):
            for begin in range(0, prompt, self.wanted.engine.tokens_per_step):
                chunk = min(prompt - begin, self.wanted.engine.tokens_per_step)
                spent += statistics.mean(added[_padded(chunk, multiple)])
            total += prompt
        return {
            "stepBase": base, "prefillToken": spent / total, "decodeSequence": slope, "contextToken": 0.0,
        }  # fmt: skip


def latencies_ms(service: dict[str, Any]) -> list[float]:
    """Return the measured latency of each served request of a service of a run."""
    ends = [end for _, end, size in service["batches_us"] for _ in range(size)]
    return [(end - arrival) / 1e3 for end, arrival in zip(ends, itertools.accumulate(service["gaps_us"]), strict=False)]


def _period_ms(loop: dict[str, Any], place: int) -> float:
    ends = loop["ends_us"][place]
    return float(statistics.median(later - earlier for earlier, later in itertools.pairwise(ends)) / 1e3)


def _padded(tokens: int, multiple: int) -> int:
    return -(-tokens // multiple) * multiple
