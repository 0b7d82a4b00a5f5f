"""Shares of `orion bench quotas` from the ends of steps, on numbers whose result is known; and its scenario files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from orion.bench import raw_data
from orion.bench.quotas import report, scenario, shares
from orion.errors import Unreadable

SCENARIOS = Path(scenario.__file__).resolve().parent.parent / "scenarios"
LOOP = {"workload": "long-kernel", "options": {"ms": 1.0, "kernels": 1}}


def loop(rate: float, seconds: float) -> list[float]:
    """Return the ends of steps at an even rate."""
    return [number / rate for number in range(1, int(rate * seconds) + 1)]


def run(clients: list[dict[str, Any]], ends: list[list[list[float]]], window: tuple[float, float]) -> dict[str, Any]:
    setting = {"name": "tried", "clients": [{**LOOP, **client} for client in clients]}
    return {"setting": setting, "window": list(window), "alone": [1000.0] * len(clients), "ends": ends}


def table(folder: Path, content: dict[str, Any]) -> list[dict[str, Any]]:
    raw_data.write(folder / "tried.json.gz", content)
    return report.analysed(folder)


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("quotas*.yaml")), ids=lambda path: path.stem)
def test_installed_scenarios_are_valid(path: Path) -> None:
    names = [setting.name for setting in scenario.read(path).settings]
    assert len(names) == len(set(names))


def test_the_scenario_of_the_results_has_twelve_usual_settings() -> None:
    settings = scenario.read(SCENARIOS / "quotas.yaml").settings
    special = [
        setting.name
        for setting in settings
        if setting.longest_turn_ms or setting.mode == "mps" or any(each.priority == "hp" for each in setting.clients)
    ]
    assert special == ["hp-limit", "hp-request", "turns-of-50-ms", "under-mps"]
    assert len(settings) - len(special) == 12


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"request": 0}, "settings[0].clients[0].request: it must be greater than or equal to 0.001, not 0"),
        ({"request": 1.5}, "settings[0].clients[0].request: it must be less than or equal to 1, not 1.5"),
        ({"limit": ".nan"}, "settings[0].clients[0].limit"),
        ({"weight": 2}, "settings[0].clients[0].weight: there is no such field"),
        ({"workload": "mining"}, "settings[0].clients[0]: there is no workload 'mining'"),
    ],
)
def test_a_wrong_field_is_refused(changed: dict[str, Any], said: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    fields = ", ".join(f"{name}: {value}" for name, value in ({"workload": "gemm"} | changed).items())
    path.write_text(f"settings: [{{name: one, clients: [{{{fields}}}]}}]\n")
    with pytest.raises(Unreadable) as caught:
        scenario.read(path)
    assert str(caught.value).startswith(f"{path}: {said}")


def test_a_gpu_has_one_hp_client(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"settings: [{{name: one, clients: [{', '.join(['{workload: gemm, priority: hp}'] * 2)}]}}]\n")
    with pytest.raises(Unreadable, match=r"settings\[0\]: a GPU has one hp slot; give one client"):
        scenario.read(path)


def test_a_change_needs_a_second_to_measure_after_it(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    client = "{workload: gemm, request: 0.2, later_request: 0.4}"
    path.write_text(f"seconds: 4\nsettings: [{{name: one, clients: [{client}]}}]\n")
    with pytest.raises(Unreadable, match="raise `seconds` to 6 or more"):
        scenario.read(path)


def test_shares_are_parts_of_what_all_slots_had(tmp_path: Path) -> None:
    ends = [[loop(600, 14)], [loop(200, 14)]]
    (part,) = table(tmp_path, run([{"request": 0.75}, {"request": 0.25}], ends, (2, 14)))
    assert [slot["due"] for slot in part["slots"]] == [0.75, 0.25]
    assert [slot["mean"] for slot in part["slots"]] == pytest.approx([0.75, 0.25], abs=0.002)
    assert part["sum"] == pytest.approx(0.8, abs=0.002)
    assert max(slot["seconds_most"] for slot in part["slots"]) < 0.003
    assert max(slot["tens_most"] for slot in part["slots"]) < 0.003


def test_with_a_limit_shares_are_parts_of_the_time(tmp_path: Path) -> None:
    (part,) = table(tmp_path, run([{"limit": 0.5}], [[loop(400, 8)]], (2, 8)))
    (slot,) = part["slots"]
    assert slot["mean"] == pytest.approx(0.4, abs=0.002)
    assert slot["seconds_95"] == pytest.approx(0.1, abs=0.003)
    assert slot["tens_most"] is None


def test_processes_of_a_slot_add_up(tmp_path: Path) -> None:
    ends = [[loop(250, 8), loop(250, 8)], [loop(500, 8)]]
    (part,) = table(tmp_path, run([{"processes": 2}, {}], ends, (2, 8)))
    assert [slot["mean"] for slot in part["slots"]] == pytest.approx([0.5, 0.5], abs=0.002)


def test_a_second_that_is_off_shows_beside_a_mean_that_is_right() -> None:
    at = shares.times(0, 10)
    ahead = np.clip(at - 4, 0, 1) * 0.2 - np.clip(at - 6, 0, 1) * 0.2
    first, second = shares.of([at * 0.5 + ahead, at * 0.5 - ahead], at, [0.5, 0.5])
    assert first.mean == pytest.approx(0.5)
    assert first.seconds_most == pytest.approx(0.2)
    assert second.seconds_most == pytest.approx(0.2)


def test_a_change_makes_two_parts(tmp_path: Path) -> None:
    def changed(before: float, after: float) -> list[float]:
        return [*loop(before, 5), *(5 + end for end in loop(after, 5))]

    clients = [{"request": 0.2, "later_request": 0.8}, {"request": 0.8, "later_request": 0.2}]
    before, after = table(tmp_path, run(clients, [[changed(200, 800)], [changed(800, 200)]], (0, 10)))
    assert (before["setting"], after["setting"]) == ("tried, before", "tried, after")
    assert [slot["due"] for slot in after["slots"]] == pytest.approx([0.8, 0.2])
    for part in (before, after):
        assert all(abs(slot["mean"] - slot["due"]) < 0.005 for slot in part["slots"])
    assert len(report.markdown([before, after]).splitlines()) == 6
