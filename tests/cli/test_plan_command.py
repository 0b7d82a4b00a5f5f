"""`orion plan`: what people and scripts see."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from orion.cli.main import main

Call = Callable[..., tuple[int, str, str]]
FLEET = """
gpus: {type: NVIDIA H200, memory: 141}
services:
  - {name: chat, service: 10ms, rate: [[0, 40], [8, 150], [20, 40]], objective: 80ms, memory: 40}
batch: [{name: nightly, work: 4, between: [0, 6], memory: 30}]
training: [{name: tune, count: 2, gpus: 1, work: 6, memory: 60, by: 24}]
"""


@pytest.fixture
def plan(capsys: pytest.CaptureFixture[str]) -> Call:
    def call(*arguments: str | Path) -> tuple[int, str, str]:
        status = main(["plan", *map(str, arguments)])
        reported = capsys.readouterr()
        return status, reported.out, reported.err

    return call


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    path = tmp_path / "fleet.yaml"
    path.write_text(FLEET)
    return path


def test_the_answer_is_one_sentence_and_tables(plan: Call, fleet: Path) -> None:
    status, out, err = plan(fleet)
    assert (status, err) == (0, "")
    assert out.startswith("3 GPUs instead of 5; the p99 of chat ")
    assert "beneath services" in out
    assert "chat 3" in out


def test_the_answer_as_json(plan: Call, fleet: Path) -> None:
    status, out, _ = plan(fleet, "--json")
    found = json.loads(out)
    assert status == 0
    assert found["schema"] == "orion.plan/1"
    assert (found["separate"]["gpus"], found["shared"]["gpus"], found["saved"]) == (5, 3, 2)
    assert {"name", "gpus", "p99_ms", "miss_ratio"} <= set(found["services"][0])
    assert found["services"][0]["p99_ms"] < 80
    assert found["services"][0]["miss_ratio"] < 0.01
    fields = {"gpu", "workload", "role", "way", "from_h", "to_h", "rate", "work_gpu_hours"}
    assert all(fields <= set(each) for each in found["placements"])
    assert sum(each["work_gpu_hours"] for each in found["placements"]) == pytest.approx(16)
    assert found["unplaced"] == []
    assert plan(fleet, "--json")[1] == out


def test_the_ends_of_jobs_on_given_gpus(plan: Call, fleet: Path) -> None:
    fleet.write_text(FLEET.replace("memory: 141}", "memory: 141, atMost: 6}"))
    status, out, _ = plan(fleet, "--ask", "finish", "--json")
    found = json.loads(out)
    assert status == 0
    assert found["shared"]["gpus"] == 6
    assert max(each["end_h"] for each in found["ends"]) < 8


def test_a_night_that_goes_over_midnight(plan: Call, fleet: Path) -> None:
    pytest.importorskip("jinja2")
    fleet.write_text(FLEET.replace("work: 4, between: [0, 6]", "work: 24, between: [22, 6]"))
    page = fleet.with_name("plan.html")
    status, out, _ = plan(fleet, "--html", page)
    nightly = next(line for line in out.splitlines() if line.startswith("nightly"))
    assert (status, nightly.count("next day")) == (0, 2)
    assert nightly.endswith("6 next day")
    rows = {line.split()[0]: "nightly" in line for line in out.splitlines() if line[:1].isdigit() and "-" in line[:6]}
    assert all(has == (int(hours.split("-")[1]) <= 6 or hours == "22-24") for hours, has in rows.items()), rows
    assert "The day repeats: the window of nightly goes on after midnight at hour 0." in page.read_text()
    found = json.loads(plan(fleet, "--json")[1])
    times = {(each["from_h"] >= 22, each["to_h"] <= 6) for each in found["placements"] if each["workload"] == "nightly"}
    assert times == {(True, False), (False, True)}
    assert 24 < next(each["end_h"] for each in found["ends"] if each["name"] == "nightly") <= 30


def test_two_answers_side_by_side(plan: Call, fleet: Path) -> None:
    status, out, _ = plan(fleet, "--what-if", "chat.rate*2")
    assert status == 0
    assert "as it is" in out
    assert "chat.rate*2" in out
    found = json.loads(plan(fleet, "--what-if", "chat.rate*2", "--json")[1])
    assert found["shared"]["gpus"] == 3
    assert found["what_if"]["changes"] == ["chat.rate*2"]
    assert found["what_if"]["shared"]["gpus"] > 3


def test_too_few_gpus_leave_work_out_and_say_why(plan: Call, fleet: Path) -> None:
    status, out, err = plan(fleet, "--what-if", "gpus.atMost=2")
    assert (status, err) == (0, "")
    assert "2 GPUs are not enough" in out
    fleet.write_text(FLEET.replace("memory: 141}", "memory: 141, atMost: 2}"))
    status, out, err = plan(fleet)
    assert (status, err) == (0, "")
    assert "chat: 2 GPUs do not hold its objective beside the services before it: set gpus.atMost to 3" in out


def test_the_page_holds_the_answer_and_refers_to_nothing(plan: Call, fleet: Path) -> None:
    pytest.importorskip("jinja2")
    page = fleet.with_name("plan.html")
    status, out, _ = plan(fleet, "--html", page)
    text = page.read_text()
    assert status == 0
    assert f"wrote {page}" in out
    assert "3 GPUs instead of 5" in text
    assert text.count("<svg") == 3
    assert "http" not in text
    plan(fleet, "--html", page)
    assert page.read_text() == text


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--ask", "finish"], 2, "give gpus.atMost"),
        (["--ask", "money"], 2, "--ask"),
        (["--what-if", "none.rate*2"], 2, "the fleet has no 'none'"),
        (["--what-if", "chat.rate=-1"], 2, "--what-if 'chat.rate=-1': services[0].rate[0][1] (chat): it must be"),
        (["--what-if", "gpus.memory=-1"], 2, "--what-if 'gpus.memory=-1': gpus.memory: -1 is less than 0"),
        (["--what-if", "chat.rate*2", "--what-if", "tune.by=25"], 2, "--what-if 'tune.by=25': tune's by is 25"),
        (["--what-if", "hours=12", "--what-if", "tune.by=13"], 2, "--what-if 'hours=12': tune's by is 24"),
    ],
)
def test_a_wrong_option_is_one_sentence(plan: Call, fleet: Path, arguments: list[str], status: int, said: str) -> None:
    found, out, err = plan(fleet, *arguments)
    assert (found, out) == (status, "")
    assert said in err
    assert err.count("\n") == 1


def test_a_file_that_is_not_there_is_one_sentence(plan: Call, tmp_path: Path) -> None:
    status, _, err = plan(tmp_path / "none.yaml")
    assert status == 1
    assert err.count("\n") == 1
    assert "none.yaml" in err
