"""`orion simulate serving --cases`: files, JSON, options, and what is refused."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orion.cli.main import main
from orion.simulation.serving import cases_runs

Call = Callable[..., tuple[int, str, str]]
SHARES, BATCHES = (20, 40, 50, 60, 80, 100), (1, 2, 4, 8, 16, 32)
TABLE = {"bert": 2.0, "googlenet": 4.0, "vgg16": 9.0, "lenet1": 0.5}
FACTS = {
    "unit": "ms",
    "overhead": {"image_224": [0.4, 0.8], "lenet": [0.3], "bert": [1.0]},
    "model_input": {"0-6,9": "image_224 (0-5 lenet: lenet)", "13": "bert"},
    "slo_ms": {"13": 22},
    "memory_mb": {
        "0-5": 50, "6": 1720, "9": 2920, "13": 500, "per_new_partition": 1230, "gpu_usable": "0.9 x 11000",
    },
}  # fmt: skip
CASES = "6:100:66 13:200:22\n9:100:142 13:100:22 0:50:5\n\n9:3000:142\nbert:20:30 9:0:142\n"


def table() -> str:
    return "".join(
        f"{model},{share},{batch},{base * (0.6 + batch * 5 / share):.4f}\n"
        for model, base in TABLE.items()
        for share in SHARES
        for batch in BATCHES
    )


def utilisation() -> str:
    rows = "".join(f"{m},{b},{0.1 + b / 200},{0.2 + b / 100}\n" for m in ("bert", "googlenet", "vgg16", "lenet")
                   for b in BATCHES)  # fmt: skip
    return "model,batch,l2,dram\n" + rows


@pytest.fixture
def plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Call:
    (tmp_path / "table.csv").write_text(table())
    (tmp_path / "facts.json").write_text(json.dumps(FACTS))
    (tmp_path / "used.csv").write_text(utilisation())
    (tmp_path / "cases.txt").write_text(CASES)
    files = {"--cases": "cases.txt", "--profiles": "table.csv", "--facts": "facts.json", "--output": "out"}

    def call(*arguments: str, planner: str = "glet", **texts: str) -> tuple[int, str, str]:
        for name, text in texts.items():
            (tmp_path / {"cases": "cases.txt", "table": "table.csv", "facts": "facts.json", "used": "used.csv"}[name]
             ).write_text(text)  # fmt: skip
        given = [each for flag, name in files.items() for each in (flag, str(tmp_path / name))]
        given += ["--interference", str(tmp_path / "used.csv"), "--gpus", "2", "--planner", planner]
        status = main(["simulate", "serving", *given, *arguments])
        reported = capsys.readouterr()
        return status, reported.out, reported.err

    return call


def test_plans_and_json_have_the_named_fields(plan: Call, tmp_path: Path) -> None:
    status, out, err = plan("--json", planner="glet,temporal")
    assert (status, err) == (0, "")
    report = json.loads(out)
    assert (report["schema"], report["cases"]) == ("orion.simulate.serving.cases/1", 4)
    assert [set(each) >= {"planner", "schedulable", "gpus", "seconds"} for each in report["planners"]] == [True] * 2
    rows = [json.loads(line) for line in (tmp_path / "out" / "plans.jsonl").read_text().splitlines()]
    assert [(row["case"], row["planner"]) for row in rows] == [
        (case, planner) for planner in ("glet", "temporal") for case in (1, 2, 3, 4)
    ]
    assert [row["schedulable"] for row in rows[:4]] == [True, True, False, True]
    assert rows[2]["parts"] == []
    assert "model 9 (vgg16)" in rows[2]["reason"]
    part = rows[0]["parts"][0]
    assert set(part) == {"gpu", "share", "copy", "way", "order", "services"}
    assert set(part["services"][0]) == {"model", "batch", "throughput", "max_delay_ms"}
    assert [each["model"] for part in rows[3]["parts"] for each in part["services"]] == [13]
    assert report["planners"][0]["schedulable"] == 3
    assert report["planners"][0]["gpus"] == sum(row["gpus"] for row in rows[:4])


def test_the_number_of_workers_changes_no_byte(plan: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases_runs, "CHUNK", 2)
    plan("--confirm", "3")
    one = (tmp_path / "out" / "plans.jsonl").read_bytes()
    assert plan("--confirm", "3", "--workers", "2")[0] == 0
    assert (tmp_path / "out" / "plans.jsonl").read_bytes() == one


def test_confirmed_plans_say_which_part_of_the_requests_is_late(plan: Call, tmp_path: Path) -> None:
    status, out, _ = plan("--confirm", "5", "--json")
    rows = [json.loads(line) for line in (tmp_path / "out" / "plans.jsonl").read_text().splitlines()]
    assert status == 0
    assert set(rows[0]["misses"]) == {"6", "13"}
    assert rows[2]["misses"] is None
    assert rows[3]["misses"]["9"] is None
    assert json.loads(out)["planners"][0]["held"] == sum(row["held"] is True for row in rows)


def test_the_task_file_of_glet_is_one_case(plan: Call, tmp_path: Path) -> None:
    assert plan(cases="2\n6,100,66,\n13,200,22,\n")[0] == 0
    of_tasks = (tmp_path / "out" / "plans.jsonl").read_text()
    assert plan(cases="6:100:66 13:200:22")[0] == 0
    assert (tmp_path / "out" / "plans.jsonl").read_text() == of_tasks


@pytest.mark.parametrize(
    ("cases", "reason"),
    [
        ("6:100:66\n7:100:108\n", "line 2: there is no model '7': choose one of 0 (lenet1), "),
        ("6:-1:66", "line 1: the rate is '-1', and must be from 0"),
        ("6:nan:66", "line 1: the rate is 'nan', which is no number"),
        ("6:100:0", "line 1: the objective is 0 ms"),
        ("6:100", "line 1: '6:100' is not model:rate:objective_ms"),
        ("6:100:66 6:1:66", "line 1: model 6 occurs twice"),
        ("3\n6,100,66,\n13,200,22,\n", "line 1: it says 3 services, and 2 follow"),
        ("2\n6,100,66,\n13,x,22,\n", "line 3: the rate is 'x'"),
        ("\u00b2\n", "line 1: '\u00b2' is not model:rate:objective_ms"),
        ("", "has no case"),
    ],
)
def test_a_bad_line_of_cases_is_refused_with_its_number(plan: Call, tmp_path: Path, cases: str, reason: str) -> None:
    status, _, err = plan(cases=cases)
    assert status == 1
    assert f"{tmp_path / 'cases.txt'}" in err
    assert reason in err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        ({"table": "bert,20,1\n"}, "line 1: it has 3 columns"),
        ({"table": "bert,120,1,2.0\n"}, "line 1: the share is 120 %"),
        ({"table": "bert,20,1,0\n"}, "line 1: the latency is 0 ms"),
        ({"table": "bert,20,1,2\nbert,20,1,2\n"}, "line 2: bert at share 20 and batch 1 occurs twice"),
        ({"table": "alexnet,20,1,2\n"}, "no model in common"),
        ({"facts": "{"}, "this is no JSON"),
        ({"facts": json.dumps({**FACTS, "slow": 1})}, "slow is wrong"),
        ({"facts": json.dumps({**FACTS, "model_input": {"13": "words"}})}, "overhead has no 'words'"),
        ({"facts": json.dumps({**FACTS, "model_input": {"99": "bert"}})}, "names a model that does not exist"),
        ({"facts": json.dumps({**FACTS, "memory_mb": {"13": 5}})}, "memory_mb needs gpu_usable"),
        ({"used": "bert,1,0.1,2\n"}, "line 1: bert uses 2 of the GPU"),
        ({"used": "bert,1,0.1,0.2\n"}, "bert has no line for batch 2"),
        ({"used": "".join(f"bert,{b},0.1,0.2\n" for b in BATCHES)}, "model lenet1 has no line"),
    ],
)
def test_wrong_files_are_refused(plan: Call, texts: dict[str, str], reason: str) -> None:
    status, _, err = plan(**texts)
    assert status == 1
    assert reason in err


def test_holes_of_the_table_are_interpolated_and_named(plan: Call) -> None:
    holes = "".join(line + "\n" for line in table().splitlines() if not line.startswith(("bert,50,", "bert,40,8,")))
    status, _, err = plan(table=holes)
    assert status == 0
    assert "7 points of bert were not measured and are interpolated" in err


@pytest.mark.parametrize(
    ("arguments", "planner", "reason"),
    [
        ((), "best", "--planner cannot be 'best': the planners are "),
        (("--parts-per-gpu", "2"), "glet", "--parts-per-gpu is for --planner orion"),
        (("--part-sizes", "20,40"), "greedy", "--part-sizes is for --planner orion"),
        (("--gpus", "9"), "full-search", "give at most 8 --gpus"),
        (("--confirm", "inf"), "glet", "--confirm cannot be inf"),
        (("--part-sizes", "10,60"), "orion", "--part-sizes cannot have 10: "),
        (("--log", "log.csv"), "glet", "--log is for a scenario"),
    ],
)
def test_wrong_options_are_refused(plan: Call, arguments: tuple[str, ...], planner: str, reason: str) -> None:
    status, _, err = plan(*arguments, planner=planner)
    assert status == 2
    assert reason in err


def test_missing_options_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "serving", "--cases", "cases.txt"]) == 2
    assert "--cases needs --profiles TABLE.csv" in capsys.readouterr().err


def test_an_option_of_cases_is_refused_beside_a_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    for flag, value in (("--gpus", "4"), ("--output", "out"), ("--confirm", "5"), ("--part-sizes", "20,40")):
        assert main(["simulate", "serving", "services.yaml", flag, value]) == 2
        assert f"{flag} is for --cases" in capsys.readouterr().err


def test_ctrl_c_keeps_plans_and_the_same_command_goes_on(
    plan: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cases_runs, "CHUNK", 1)
    plan("--confirm", "2")
    file, row = tmp_path / "out" / "plans.jsonl", cases_runs._row
    whole, made = file.read_bytes(), list[int]()

    def interrupted(number: int, *rest: Any) -> dict[str, Any]:
        made.append(number)
        if made == [1, 2, 3]:
            os.kill(os.getpid(), signal.SIGINT)
        return row(number, *rest)

    monkeypatch.setattr(cases_runs, "_row", interrupted)
    status, _, err = plan("--confirm", "2")
    assert status == 130
    assert "stopped; 2 plans are kept" in err
    assert file.read_bytes() == whole
    file.unlink()
    assert plan("--confirm", "2")[0] == 0
    assert made == [1, 2, 3, 3, 4]
    assert file.read_bytes() == whole
    assert [path.name for path in file.parent.iterdir()] == ["plans.jsonl"]
