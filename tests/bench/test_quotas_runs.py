"""The settings of bench/scenarios/quotas.yaml on the simulated GPU, with short runs: each slot gets what it is due."""

import re
from pathlib import Path
from typing import Any

import pytest

from orion.bench import raw_data
from orion.bench.quotas import report, runs, scenario, shares
from orion.errors import Exhausted
from tests.hook.gpu_time import Timeline
from tests.hook.harness import figure

pytestmark = pytest.mark.quiet

SHIPPED = scenario.read(Path(scenario.__file__).resolve().parent.parent / "scenarios" / "quotas.yaml")
SHORT = SHIPPED.model_copy(update={"settle_seconds": 1.0, "seconds": 3.0, "alone_seconds": 0.5})
SHORT_CHANGE = SHORT.model_copy(update={"seconds": 6.0})
SHORT_HP = SHORT.model_copy(update={"settle_seconds": 4.0})
""" An hp slot may use its first second's time at once. """


ROUNDS_AT_MOST = 6
POINTS = 0.03
BY_TIME, POINTS_OF_TIME = re.compile("limit-alone|hp"), 0.06
""" In these settings shares are parts of the time that passes: what clients do not use of it is missing. """
POINTS_OF_A_SLEEPER = 0.2
""" A sleeper's part is counted by its rate alone, sleep included. Time that is lost when a turn passes on is missing
in the worker's part only. On the simulated GPU much is lost, as it depends on the CPUs. """


def points(name: str) -> float:
    """Return how far a share may be from what is due."""
    return POINTS_OF_A_SLEEPER if name == "sleeper" else POINTS_OF_TIME if BY_TIME.match(name) else POINTS


def by_work(folder: Path) -> list[float]:
    """Return by how much the shares of a run's slots differ from what they are due, by work over work alone."""
    found = []
    for part in report.analysed(folder):
        found += [slot["mean"] - slot["due"] for slot in part["slots"]]
        figure(f"{part['setting']}: shares less what is due (sum {part['sum']:.3f})", found, "")
    return found


def by_gpu_time(run: dict[str, Any], trace: Path) -> list[float]:
    """Return the same by the simulated GPU's own record."""
    clients, (begin, end) = run["setting"]["clients"], run["window"]
    parts = [(begin, end, False)]
    if any("later_request" in client for client in clients):
        middle = (begin + end) / 2
        parts = [(begin, middle, False), (middle + report.CHANGE_SECONDS, end, True)]
    found = []
    for first, last, later in parts:
        since, until = (run["monotonic_ns"] + round(seconds * 1e9) for seconds in (first, last))
        had = [
            sum(Timeline(trace, process_id).seconds(since, until) for process_id in processes)
            for processes in run["processes"]
        ]
        whole = last - first if BY_TIME.match(run["setting"]["name"]) else sum(had)
        found += [time / whole - due for time, due in zip(had, shares.dues(clients, later), strict=True)]
    figure(f"{run['setting']['name']}: the same by GPU time", found, "")
    return found


def measured(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[list[float], list[float]]:
    """Run a setting; return by how much the slots' shares differ from what they are due, by work and by GPU time."""
    short = SHORT_CHANGE if name == "change" else SHORT_HP if name.startswith("hp") else SHORT
    trace = folder.with_suffix(".trace")
    monkeypatch.setenv("ORION_SIM_TRACE", str(trace))
    runs.run(short, folder, simulated=True, only=name, stop_after=60, say=lambda line: None)
    return by_work(folder), by_gpu_time(raw_data.read(folder / f"{name}.json.gz"), trace)


def gets_what_it_is_due(name: str, work: list[float], gpu_time: list[float]) -> bool:
    """Return whether a round shows that the shares are right.

    Other load disturbs one of two measures more: rates alone, which are measured at other times, or the GPU's time,
    which lacks what clients waste of their turns. A ceiling is one of GPU time: a rate alone that was too low makes
    a share by work look too high.
    """
    if name == "sleeper":
        return max(map(abs, work)) < points(name)
    if name.startswith("limit") and gpu_time[0] >= POINTS:
        return False
    return min(max(map(abs, work)), max(map(abs, gpu_time))) < points(name)


@pytest.mark.parametrize("name", [setting.name for setting in SHIPPED.settings])
def test_each_slot_gets_what_it_is_due(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Other load disturbs single rounds, and takes GPU time from a slot with a limit, as its client is late to begin its
    # turns. A fault of the turns disturbs all rounds, and by more than a busy machine does.
    rounds: list[tuple[list[float], list[float]]] = []
    while len(rounds) < ROUNDS_AT_MOST:
        rounds.append(measured(name, tmp_path / f"{len(rounds)}", monkeypatch))
        if gets_what_it_is_due(name, *rounds[-1]):
            return
    raise AssertionError(f"no round gave each slot what it is due (by work, by GPU time): {rounds}")


def test_a_client_without_a_rate_alone_is_named(tmp_path: Path) -> None:
    """Before, the shares of all clients were no numbers, and nothing said so."""
    slow = {"name": "slow", "clients": [{"workload": "long-kernel", "options": {"ms": 1500.0, "kernels": 1}}]}
    tried = scenario.Scenario.model_validate({"alone_seconds": 0.5, "settings": [slow]})
    with pytest.raises(Exhausted, match="long-kernel ended fewer than two steps alone in 1 s"):
        runs.run(tried, tmp_path, simulated=True, only=None, stop_after=60, say=lambda line: None)
    assert not list(tmp_path.iterdir())
