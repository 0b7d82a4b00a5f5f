"""Scenario files: valid content, and one-sentence errors for invalid content."""

import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from orion.bench.colocation import scenario as scenarios
from orion.bench.colocation.plan import Plan
from orion.bench.colocation.scenario import Scenario, Trace
from orion.bench.colocation.systems import STANDARD, Orion
from orion.errors import Unreadable
from orion.hook.policy_table import BENCH

SCENARIOS = Path(scenarios.__file__).resolve().parent.parent / "scenarios"


def fields(**changes: Any) -> dict[str, Any]:
    experiment = {
        "hp": {"workload": "resnet50-inference", "options": {"batch": 64}},
        "arrivals": {"kind": "poisson", "load": 0.35},
        "be": [{"workload": "resnet50-training"}],
        "systems": ["alone", "orion"],
    }
    known = {name: value for name, value in changes.items() if name in Scenario.model_fields}
    rest = {name: value for name, value in changes.items() if name not in known}
    return {"name": "one", "experiments": [{**experiment, **rest}], **known}


def written(folder: Path, content: Any) -> Path:
    path = folder / "scenario.yaml"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


def read(folder: Path, **changes: Any) -> Scenario:
    return scenarios.read(written(folder, fields(**changes))).resolved(folder)


@pytest.mark.parametrize(
    "path",
    sorted(
        {*SCENARIOS.glob("*.yaml")}
        - {SCENARIOS / "services.yaml", *SCENARIOS.glob("quotas*.yaml"), *SCENARIOS.glob("memory*.yaml")}
    ),
    ids=lambda path: path.stem,
)
def test_every_installed_scenario_can_be_planned(path: Path) -> None:
    scenario = scenarios.read(path)
    assert scenario.name == path.stem
    assert Plan(scenario.resolved(path.parent)).units


def test_a_resolved_scenario_can_be_written_and_read(tmp_path: Path) -> None:
    systems = {"tight": {"kind": "orion", "mode": "mps", "max_slowdown": 1.2}}
    content = fields(systems=systems)
    content["experiments"][0]["systems"] = ["tight", "mps"]
    scenario = scenarios.read(written(tmp_path, content)).resolved(tmp_path)
    assert list(scenario.systems) == ["alone", "tight", "mps"]
    again = scenarios.read(written(tmp_path, scenarios.write(scenario)))
    assert again == scenario


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        pytest.param({"arrivals": {"kind": "poisson", "load": 1.2}}, "[0].arrivals.load: it must be less than 1",
                     id="a load above capacity"),
        pytest.param({"arrivals": {"kind": "poisson"}}, "give either load (a share of hp's capacity", id="no load"),
        pytest.param({"arrivals": {"kind": "weekly"}}, "experiments[0].arrivals: ", id="unknown arrivals"),
        pytest.param({"systems": {"x": {"kind": "orion", "polcy": "gate"}}}, "systems.x.polcy: there is no such field",
                     id="a misspelt field"),
        pytest.param({"be": []}, "experiments[0].be: ", id="no be"),
        pytest.param({"be": [{"workload": "gemm", "count": 2, "requests": [1]}]}, "1 requests for a count of 2",
                     id="requests"),
        pytest.param({"ceiling": ["gate"]}, "experiments[0].ceiling: 'gate' overlaps nothing", id="no overlap"),
        pytest.param({"name": "../up"}, "name: only letters, digits", id="a name that leaves the folder"),
        pytest.param({"rounds": 0}, "rounds: it must be greater than or equal to 1, not 0", id="no rounds"),
        pytest.param({"systems": {"t": {"kind": "orion", "mode": "threads", "window_us": 900}}},
                     "mode threads accepts only policy and max_slowdown; remove window_us", id="threads"),
        pytest.param({"lead_seconds": math.inf}, "lead_seconds: it must be a finite number, not inf", id="without end"),
        pytest.param({"systems": {"t": {"kind": "orion", "max_slowdown": math.inf}}},
                     "systems.t.max_slowdown: it must be a finite number", id="a budget without end"),
        pytest.param({"arrivals": {"kind": "trace", "gaps": [0.1, math.inf]}},
                     "arrivals.gaps[1]: it must be a finite number", id="a gap without end"),
        pytest.param({"arrivals": {"kind": "trace", "gaps": [1.5e308, 1.5e308]}},
                     "the gaps add up to inf seconds: give gaps", id="gaps without end"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_named_in_one_sentence(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(Unreadable) as refused:
        read(tmp_path, **changes)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_undefined_system_is_rejected_with_a_list_of_the_defined_ones(tmp_path: Path) -> None:
    content = fields()
    content["experiments"][0]["systems"] = ["orino"]
    with pytest.raises(Unreadable, match=r"experiments\[0\].systems: 'orino' is neither .* one of alone, timeslice"):
        scenarios.read(written(tmp_path, content))


@pytest.mark.parametrize("content", ["", "[1, 2]", "a: [", "\0", "name: x"])
def test_a_file_that_is_no_scenario_is_rejected_in_one_sentence(content: str, tmp_path: Path) -> None:
    with pytest.raises(Unreadable) as refused:
        scenarios.read(written(tmp_path, content))
    assert "\n" not in str(refused.value)
    assert "scenario.yaml" in str(refused.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match=r"nowhere\.yaml: No such file"):
        scenarios.read(tmp_path / "nowhere.yaml")


@pytest.mark.parametrize(
    ("text", "values", "gaps"),
    [("0.5\n1.0\n3.0\n", "times", [0.5, 0.5, 2.0]), ("[0.1, 0.3]", "gaps", [0.1, 0.3])],
    ids=["times, one a line", "gaps, JSON"],
)
def test_the_resolved_scenario_has_the_trace_inline(text: str, values: str, gaps: list[float], tmp_path: Path) -> None:
    (tmp_path / "trace").write_text(text)
    arrivals = read(tmp_path, arrivals={"kind": "trace", "file": "trace", "values": values}).experiments[0].arrivals
    assert isinstance(arrivals, Trace)
    assert arrivals.gaps == pytest.approx(gaps)
    assert arrivals.file is None


def test_a_trace_with_descending_times_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "trace").write_text("1.0 0.5")
    with pytest.raises(Unreadable, match=r"experiments\[0\].arrivals.file: .*trace.*values: times"):
        read(tmp_path, arrivals={"kind": "trace", "file": "trace"})


def test_a_trace_with_an_infinite_time_is_rejected_with_its_file(tmp_path: Path) -> None:
    (tmp_path / "trace").write_text("1.0 inf")
    with pytest.raises(Unreadable, match=r"experiments\[0\].arrivals.file: .*trace: gaps\[1\]: it must be a finite"):
        read(tmp_path, arrivals={"kind": "trace", "file": "trace"})


def test_every_policy_is_a_standard_system_in_every_mode() -> None:
    suffixes = {"timeslice": "", "mps": "-in-mps", "threads": "-in-threads"}
    missing = {f"{policy}{suffix}" for policy in BENCH.names for suffix in suffixes.values()} - set(STANDARD)
    assert missing == set()
    orions = {name: each for name, each in STANDARD.items() if isinstance(each, Orion)}
    assert all(name == f"{each.policy}{suffixes[each.mode]}" for name, each in orions.items())


def test_the_agent_gets_only_the_fields_that_the_system_sets() -> None:
    assert Orion(kind="orion", mode="mps", max_slowdown=1.2, rounds=2).policy_fields() == {
        "policy": "orion", "max_slowdown": 1.2,
    }  # fmt: skip
