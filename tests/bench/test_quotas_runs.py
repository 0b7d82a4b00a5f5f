"""The settings of bench/scenarios/quotas.yaml on the simulated GPU, with short runs: each slot gets what it is due."""

from pathlib import Path

import pytest

from orion.bench.quotas import report, runs, scenario
from tests.hook.harness import figure

pytestmark = pytest.mark.quiet

SHIPPED = scenario.read(Path(scenario.__file__).resolve().parent.parent / "scenarios" / "quotas.yaml")
SHORT = SHIPPED.model_copy(update={"settle_seconds": 1.0, "seconds": 3.0, "alone_seconds": 0.5})
SHORT_CHANGE = SHORT.model_copy(update={"seconds": 6.0})
SHORT_HP = SHORT.model_copy(update={"settle_seconds": 4.0})
""" An hp slot may use its first second's time at once. """


ROUNDS_AT_MOST = 4
POINTS = 0.03
POINTS_OF_A_SLEEPER = 0.1
""" A sleeper's part is counted by its rate alone, sleep included. Time that is lost when a turn passes on is missing
in the worker's part only. On the simulated GPU much is lost, as it depends on the CPUs. """


def off(name: str, folder: Path) -> list[float]:
    """Run a setting; return by how much the slots' shares differ from what they are due."""
    short = SHORT_CHANGE if name == "change" else SHORT_HP if name.startswith("hp") else SHORT
    runs.run(short, folder, simulated=True, only=name, stop_after=60, say=lambda line: None)
    found = []
    for part in report.analysed(folder):
        found += [slot["mean"] - slot["due"] for slot in part["slots"]]
        figure(f"{part['setting']}: shares less what is due (sum {part['sum']:.3f})", found, "")
    return found


@pytest.mark.parametrize("name", [setting.name for setting in SHIPPED.settings])
def test_each_slot_gets_what_it_is_due(name: str, tmp_path: Path) -> None:
    # Other load disturbs single rounds, and takes GPU time from a slot with a limit, as its client is late to begin its
    # turns. A fault of the turns disturbs all rounds, and by more than a busy machine does.
    rounds: list[list[float]] = []
    points = POINTS_OF_A_SLEEPER if name == "sleeper" else POINTS
    while not rounds or (len(rounds) < ROUNDS_AT_MOST and max(map(abs, rounds[-1])) >= points):
        rounds.append(off(name, tmp_path / f"{len(rounds)}"))
    assert min(max(map(abs, found)) for found in rounds) < 2 * points, rounds
    if name.startswith("limit"):
        assert min(found[0] for found in rounds) < POINTS, f"the ceiling does not hold: {rounds}"
