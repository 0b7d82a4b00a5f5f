"""Each setting of `orion bench memory` on the simulated GPU, with short runs: what must hold on a busy machine, too."""

from pathlib import Path
from typing import Any

import pytest

from orion.bench import raw_data
from orion.bench.memory import report, runs, scenario

SMOKE = scenario.read(scenario.SHIPPED.with_name("memory-smoke.yaml"))


def measured(name: str, folder: Path) -> dict[str, Any]:
    """Measure one setting; return its raw data."""
    said: list[str] = []
    runs.run(SMOKE, folder, simulated=True, only=name, say=said.append)
    assert said[-1].startswith(f"{name}: ")
    (table,) = report.analysed(folder)
    assert table["setting"] == name
    assert len(report.markdown([table]).splitlines()) == 2 + len(table["figures"])
    return raw_data.read(folder / f"{name}.json.gz")


def test_a_trainer_that_has_been_parked_has_the_contents_of_one_that_has_not(tmp_path: Path) -> None:
    run = measured("changes", tmp_path)
    assert len(run["out"]) == len(run["back"]) == 2
    assert run["moved"] == run["stayed"]


def test_no_allocation_of_a_growing_hp_fails(tmp_path: Path) -> None:
    run = measured("growth", tmp_path)
    allocations = run["runs"][1]["allocations"]
    assert len(allocations) == 75
    assert {status for _, _, status in allocations} == {0}
    assert run["parkings"]["left"] > 0


def test_hp_serves_the_same_requests_with_changes_and_without(tmp_path: Path) -> None:
    run = measured("beside", tmp_path)
    assert [each["moves"] for each in run["windows"]] == [True, False, False, True]
    assert [bool(each["changes"]) for each in run["windows"]] == [True, False, False, True]
    assert {len(each["ends"]) - len(each["arrivals"]) for each in run["windows"]} == {0}


def test_all_trainers_compute_although_not_all_fit(tmp_path: Path) -> None:
    run = measured("density", tmp_path)
    assert all(run["all"]["steps"])
    assert len(run["all"]["steps"]) == 4
    assert run["parkings"]["left"] > 0
    assert min(sum(sample[1:]) for sample in run["all"]["samples"]) < 4


def test_a_slot_never_exceeds_its_limit(tmp_path: Path) -> None:
    run = measured("limit", tmp_path)
    assert run["killed"] > 0
    assert 0 < max(held for _, held, _ in run["driver"]) <= run["limit"]
    assert max(held for _, held, _ in run["hook"]) > 0
    assert {"plain 0", "pitched 0", "ordered 0", "virtual 0"} <= run["results"].keys()
    assert any(name.endswith(" 2") for name in run["results"])


def test_trainers_that_do_not_fit_compute_in_each_way(tmp_path: Path) -> None:
    (run,) = measured("moving", tmp_path)["rounds"]
    for way, count in (("alone", 1), ("unmanaged", 3), ("plain", 3), ("unified", 3)):
        assert [bool(ends) for ends in run[way]["steps"]] == [True] * count, way
    assert any(run["park"]["steps"])  # a stay may be longer than the run


def test_the_agents_word_comes_after_the_need_of_hp(tmp_path: Path) -> None:
    run = measured("need", tmp_path)
    assert [each["status"] for each in run["rounds"]] == [0, 0]
    for each in run["rounds"]:
        assert each["asked"] < each["word"] < each["had"]


def test_the_agents_cpu_time_is_measured_while_tenants_of_two_gpus_take_turns(tmp_path: Path) -> None:
    run = measured("agent", tmp_path)
    assert run["clients"] == 6
    assert len(run["samples"]) == 3
    assert run["samples"][0][1] < run["samples"][-1][1]
    assert run["left"] + run["parked"] > 0


def test_each_allocation_beyond_the_credit_in_hand_succeeds(tmp_path: Path) -> None:
    run = measured("credit", tmp_path)
    assert [status for _, _, status in run["allocations"]] == [0] * 20


@pytest.mark.parametrize("name", ["moving", "need", "agent"])
def test_what_may_harm_a_real_gpu_is_left_out(name: str, tmp_path: Path) -> None:
    said: list[str] = []
    runs.run(SMOKE, tmp_path, simulated=False, only=name, say=said.append)
    assert len(said) == 1
    assert f"{name}: left out: " in said[0]
    assert not list(tmp_path.iterdir())


def test_a_setting_that_has_been_measured_is_not_measured_again(tmp_path: Path) -> None:
    for setting in SMOKE.settings:
        raw_data.write(tmp_path / f"{setting.name}.json.gz", {"setting": setting.model_dump()})
    said: list[str] = []
    runs.run(SMOKE, tmp_path, simulated=True, only=None, say=said.append)
    assert said == []


@pytest.mark.parametrize("path", sorted(scenario.SHIPPED.parent.glob("memory*.yaml")), ids=lambda path: path.stem)
def test_installed_scenarios_have_settings_of_each_kind(path: Path) -> None:
    settings = scenario.read(path).settings
    kinds = ["changes", "growth", "beside", "density", "limit", "moving", "need", "agent", "credit"]
    assert list(dict.fromkeys(setting.kind for setting in settings)) == kinds
    assert len({setting.name for setting in settings}) == len(settings)


def test_a_setting_can_be_named_instead_of_a_file() -> None:
    found, only = scenario.chosen("growth", None)
    assert (len(found.settings), only) == (10, "growth")
    assert scenario.chosen(str(scenario.SHIPPED), "limit")[1] == "limit"
