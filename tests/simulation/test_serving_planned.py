"""What a scenario tells the planner `orion`: processes, best-effort work, and a plan that runs already."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from orion.cli.main import main

Plain = dict[str, Any]


def points(times: dict[float, tuple[float, float]], batch: int) -> list[Plain]:
    return [
        {"batch": size, "smShare": share, "medianNs": ms * 1e6}
        for share, pair in times.items()
        for size, ms in zip((1, batch), pair, strict=True)
    ]


def service(name: str, rate: float, objective: str, latency: list[Plain], **more: Any) -> Plain:
    return {
        "name": name, "memory": 5, "rate": rate, "objective": {"latency": objective}, "latency": latency, **more,
    }  # fmt: skip


SEARCH = service("search", 300, "50ms", points({1: (4, 16), 0.5: (5, 26)}, 16))
IMAGES = service("images", 60, "200ms", points({1: (9, 48), 0.5: (13, 80)}, 8))
TAGS = service("tags", 100, "100ms", points({1: (9, 40), 0.5: (13, 60)}, 8))


def scenario(*services: Plain, **more: Any) -> Plain:
    gpus = [{"name": f"g{number}", "type": "H200", "memory": 141} for number in range(3)]
    return {"gpus": gpus, "seed": 1, "seconds": 5, "services": list(services or (SEARCH, IMAGES, TAGS)), **more}


@pytest.fixture
def simulate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    def call(plain: Plain, *arguments: str) -> tuple[int, str, str]:
        path = tmp_path / "scenario.yaml"
        path.write_text(yaml.safe_dump(plain))
        status = main(["simulate", "serving", str(path), *arguments])
        reported = capsys.readouterr()
        return status, reported.out, reported.err

    return call


def found(answer: tuple[int, str, str]) -> Plain:
    status, out, err = answer
    assert status == 0, err
    plain: Plain = json.loads(out)
    return plain


def ways(report: Plain) -> set[str]:
    return {part["way"] for part in report["plan"]}


def places(report: Plain) -> set[tuple[str, str]]:
    return {(each["name"], part["gpu"]) for part in report["plan"] for each in part["services"]}


def test_services_of_one_process_share_by_green_contexts_and_need_no_other_order(simulate: Any) -> None:
    together = [{**each, "process": "server"} for each in (SEARCH, IMAGES, TAGS)]
    apart = found(simulate(scenario(), "--json"))
    assert ways(apart) == {"turns"}
    assert all("one process" in part["needs"] for part in apart["plan"] if len(part["services"]) > 1)
    report = found(simulate(scenario(*together), "--json"))
    assert "threads" in ways(report)
    assert [part["needs"] for part in report["plan"]] == [None] * len(report["plan"])
    assert "green contexts" in report["reason"]


def test_best_effort_work_runs_beneath_and_pays_for_each_busy_period(simulate: Any) -> None:
    jobs = [{"name": "tune", "memory": 60, "slowdown": 1.25}, {"name": "huge", "memory": "140Gi"}]
    report = found(simulate(scenario(SEARCH, bestEffort=jobs), "--json"))
    tune, huge = report["beneath"]
    assert (tune["name"], tune["gpu"]) == ("tune", "g0")
    assert huge == {"name": "huge", "gpu": None, "speed": None}
    idle = 1 - report["gpus"][0]["busy"]
    busy_periods = 300 * 0.30e-3  # at most one for each request
    assert tune["speed"] == pytest.approx(idle * (1 - busy_periods) / 1.25, rel=0.15)
    assert tune["speed"] < idle / 1.25
    _, out, _ = simulate(scenario(SEARCH, bestEffort=jobs))
    assert "tune: beneath the services of g0, at " in out
    assert "huge: beneath no GPU's services" in out


def test_a_plan_that_runs_stays_or_moves_little(simulate: Any, tmp_path: Path) -> None:
    running = tmp_path / "running.json"
    before = found(simulate(scenario(), "--json"))
    running.write_text(json.dumps(before))
    same = found(simulate(scenario(), "--from", str(running), "--json"))
    assert same["from"] == {"file": str(running), "moved": []}
    assert places(same) == places(before)
    more = scenario(SEARCH, {**IMAGES, "rate": 110}, TAGS)
    grown = found(simulate(more, "--from", str(running), "--json"))
    assert places(before) <= places(grown)
    assert {(each["service"], each["gpu"]) for each in grown["from"]["moved"]} == places(grown) - places(before)
    assert grown["from"]["moved"]
    status, out, _ = simulate(more, "--from", str(running))
    assert (status, "starts images on g2" in out) == (0, True)
    assert "no service moves" in simulate(scenario(), "--from", str(running))[1]


def test_a_running_plan_keeps_its_gpus_where_a_new_plan_would_number_them_otherwise(
    simulate: Any, tmp_path: Path
) -> None:
    running = tmp_path / "running.yaml"
    part = {"gpu": "g2", "services": [{"name": "search", "batch": 16}]}
    running.write_text(yaml.safe_dump({"plan": [part]}))
    assert places(found(simulate(scenario(SEARCH), "--json"))) == {("search", "g0")}
    assert places(found(simulate(scenario(SEARCH), "--from", str(running), "--json"))) == {("search", "g2")}


@pytest.mark.parametrize(
    ("text", "plain", "arguments", "status", "said"),
    [
        ("{}", scenario(), [], 1, "running.json: it has no plan: give the --json output of orion simulate serving"),
        ("{plan: [{gpu: x, services: [{name: a}]}]}", scenario(), [], 1, "its plan has none of the GPUs of"),
        ("{plan: [{gpu: g0}]}", scenario(), [], 1, "plan[0].services: it is missing"),
        ("{", scenario(), [], 1, "running.json, line 1: this is no YAML"),
        ("{}", scenario(), ["--planner", "glet"], 2, "--from is for the planner orion"),
        (
            "{}", scenario(SEARCH, plan=[{"gpu": "g0", "services": [{"name": "search"}]}]), [], 2,
            "--from needs a scenario without a plan",
        ),
    ],
)  # fmt: skip
def test_a_running_plan_that_cannot_be_read_is_one_sentence(
    simulate: Any, tmp_path: Path, text: str, plain: Plain, arguments: list[str], status: int, said: str
) -> None:
    running = tmp_path / "running.json"
    running.write_text(text)
    ended, out, err = simulate(plain, "--from", str(running), *arguments)
    assert (ended, out, err.count("\n")) == (status, "", 1)
    assert said in err


@pytest.mark.parametrize(
    ("plain", "arguments", "said"),
    [
        (scenario(bestEffort=[{"name": "b"}]), ["--planner", "temporal"], "puts nothing beneath services"),
        (scenario(bestEffort=[{"name": "tags"}]), [], "the name 'tags' is there twice"),
        (scenario(bestEffort=[{"name": "b", "slowdown": 0.5}]), [], "bestEffort[0].slowdown (b)"),
        (
            scenario(SEARCH, bestEffort=[{"name": "b"}], plan=[{"gpu": "g0", "services": [{"name": "search"}]}]), [],
            "bestEffort is for a planner",
        ),
    ],
)  # fmt: skip
def test_best_effort_work_that_cannot_be_planned_is_one_sentence(
    simulate: Any, plain: Plain, arguments: list[str], said: str
) -> None:
    status, out, err = simulate(plain, *arguments)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert said in err
