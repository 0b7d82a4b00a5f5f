"""FLEET.yaml: what is read, what is refused and with which sentence, and `--what-if`."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from orion.errors import Invalid, Unreadable
from orion.planning.fleet.fleets import Fleet
from orion.simulation.fleet import changes, files

EXAMPLE = Path(__file__).parents[2] / "examples" / "fleet.yaml"
SERVICE: dict[str, Any] = {"name": "a", "service": "8ms", "rate": [[0, 10]], "objective": "60ms", "memory": 20}
BATCH: dict[str, Any] = {"name": "b", "work": 3, "between": [0, 6], "memory": "40Gi"}
TRAINING: dict[str, Any] = {"name": "t", "count": 2, "gpus": 2, "work": 10, "memory": 30, "by": 20}


def fields(**changed: Any) -> dict[str, Any]:
    whole = {
        "gpus": {"type": "NVIDIA H200", "memory": 141},
        "services": [SERVICE],
        "batch": [BATCH],
        "training": [TRAINING],
    }
    return {**whole, **changed}


def read(plain: dict[str, Any], path: Path = Path("fleet.yaml")) -> Fleet:
    return files.read(path, plain)[0]


def test_units_are_seconds_gigabytes_and_hours() -> None:
    fleet = read(fields(sharing={"switch": "0.30ms", "hpPerGpu": 2}, hours=30))
    assert (fleet.switch_s, fleet.hp_per_gpu, fleet.hours, fleet.at_most) == (0.0003, 2, 30, None)
    assert fleet.services[0].service_s == 0.008
    assert fleet.services[0].objective_s == 0.06
    assert fleet.batches[0].memory_gb == pytest.approx(40 * 1024**3 / 1e9)
    assert fleet.training[0].alone_h == 5


def test_rates_of_a_day_repeat_and_hold_over_midnight() -> None:
    service = {**SERVICE, "rate": [[6, 10], [18, 4]]}
    fleet = read(fields(services=[service], hours=48))
    assert fleet.services[0].rates == ((0.0, 4.0), (6.0, 10.0), (18.0, 4.0), (30.0, 10.0), (42.0, 4.0))


def test_a_window_may_go_over_midnight() -> None:
    batches = [{**BATCH, "between": [22, 6]}, {**BATCH, "name": "c", "between": [20, 0]}]
    day, longer = read(fields(batch=batches)), read(fields(batch=batches, hours=48))
    assert [(each.from_h, each.to_h) for each in day.batches] == [(22, 30), (20, 24)]
    assert [each.closed(day.hours) for each in day.batches] == [(6, 22), None]
    assert [each.closed(longer.hours) for each in longer.batches] == [None, None]


def test_the_example_is_read() -> None:
    fleet = read(files.parse(EXAMPLE))
    assert [each.name for each in fleet.services] == ["search", "chat", "ranking"]


def test_a_fleet_may_be_empty() -> None:
    assert read({"gpus": {"memory": 80}, "services": [], "batch": [], "training": []}).services == ()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"gpu": {}}, "there is no field 'gpu'; there are gpus, hours, seed, sharing, services, batch, training"),
        ({"services": [{**SERVICE, "rates": []}]}, "there are name, service, profile, rate, objective, memory"),
        ({"gpus": {"memory": 80, "most": 3}}, "there are type, memory, atMost"),
        ({"batch": [{**BATCH, "name": "a"}]}, "the name 'a' occurs twice"),
        ({"services": [{**SERVICE, "rate": [[0, -1]]}]}, "services[0].rate[0][1] (a)"),
        ({"services": [{**SERVICE, "rate": [[0, float("nan")]]}]}, "services[0].rate[0][1] (a)"),
        ({"services": [{**SERVICE, "rate": [[6, 1], [3, 1]]}]}, "the hours of rate must ascend"),
        ({"services": [{**SERVICE, "rate": []}]}, "services[0].rate (a)"),
        ({"services": [{**SERVICE, "service": 8}]}, "must be a duration"),
        ({"services": [{**SERVICE, "service": "0ms"}]}, "longer than 0"),
        ({"services": [{**SERVICE, "profile": "p.yaml"}]}, "give either service"),
        ({"batch": [{**BATCH, "between": [6, 6]}]}, "between ends at 6"),
        ({"batch": [{**BATCH, "between": [30, 26]}], "hours": 48}, "between ends at 26"),
        ({"batch": [{**BATCH, "between": [22, 6]}], "hours": 25}, "b's window ends at 30, after hours (25)"),
        ({"batch": [{**BATCH, "between": [22, 6]}], "hours": 12}, "b's window ends at 30, after hours (12)"),
        ({"batch": [{**BATCH, "between": [20, 30]}]}, "b's window ends at 30, after hours (24)"),
        ({"batch": [{**BATCH, "work": -1}]}, "batch[0].work (b)"),
        ({"training": [{**TRAINING, "by": 25}]}, "t's by is 25, after hours (24)"),
        ({"training": [{**TRAINING, "gpus": 0}]}, "training[0].gpus (t)"),
        ({"training": [{**TRAINING, "memory": -2}]}, "training[0].memory (t)"),
        ({"hours": 0}, "hours: it must be"),
        ({"sharing": {"hpPerGpu": 0}}, "sharing.hpPerGpu: it must be"),
        ({"gpus": {"memory": 0}}, "gpus.memory: "),
    ],
)
def test_a_fault_is_named_in_one_sentence(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(Unreadable) as caught:
        read(fields(**changed))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["- a\n", "a: [", "", "\x00", "x: 2024-99-99"])
def test_what_is_no_fleet_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(text)
    with pytest.raises(Unreadable):
        read(files.parse(path))


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 99) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(["gpus", "hours", "seed", "sharing", "services", "batch", "training"]), PLAIN)
def test_any_value_of_any_field_is_read_or_refused(name: str, value: Any) -> None:
    with suppress(Unreadable):
        read(fields(**{name: value}))


@given(
    st.sampled_from(["services", "batch", "training"]), st.sampled_from(list({**SERVICE, **BATCH, **TRAINING})), PLAIN
)
def test_any_value_of_a_workload_is_read_or_refused(part: str, name: str, value: Any) -> None:
    workload = {"services": SERVICE, "batch": BATCH, "training": TRAINING}[part]
    with suppress(Unreadable):
        read(fields(**{part: [{**workload, name: value}]}))


def test_a_profile_gives_the_time_of_a_request(tmp_path: Path) -> None:
    spec = {
        "gpu": {"model": "NVIDIA H200"}, "source": {"kind": "cupti"}, "kernels": [],
        "latency": [{"batch": 1, "smShare": 1, "medianNs": 7e6, "p99Ns": 8e6}],
    }  # fmt: skip
    profile = {"apiVersion": "orion.gpu/v1alpha1", "kind": "GPUProfile", "metadata": {"name": "a"}, "spec": spec}
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(profile))
    service = {name: value for name, value in SERVICE.items() if name != "service"} | {"profile": "a.yaml"}
    assert read(fields(services=[service]), tmp_path / "fleet.yaml").services[0].service_s == pytest.approx(0.007)
    with pytest.raises(Unreadable, match=r"it was measured on NVIDIA H200, and gpus\.type is A100"):
        read(fields(services=[service], gpus={"type": "A100", "memory": 80}), tmp_path / "fleet.yaml")
    with pytest.raises(Unreadable, match="give a's GPUProfile"):
        read(fields(services=[{**service, "profile": "none.yaml"}]), tmp_path / "fleet.yaml")


@pytest.mark.parametrize(
    ("expression", "place", "value"),
    [
        ("a.rate*1.5", ("services", 0, "rate"), [[0, 15]]),
        ("a.service/2", ("services", 0, "service"), "4ms"),
        ("a.objective=80ms", ("services", 0, "objective"), "80ms"),
        ("t.count+3", ("training", 0, "count"), 5),
        ("t.by-4", ("training", 0, "by"), 16),
        ("b.memory=30", ("batch", 0, "memory"), 30),
        ("gpus.atMost=40", ("gpus", "atMost"), 40),
        ("sharing.hpPerGpu=2", ("sharing", "hpPerGpu"), 2),
        ("hours=30", ("hours",), 30),
    ],
)
def test_what_if_changes_one_value(expression: str, place: tuple[Any, ...], value: Any) -> None:
    before = fields()
    found: Any = changes.changed(before, [expression])
    read(found)
    for step in place:
        found = found[step]
    assert found == value
    assert before == fields()


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("nonsense", "is no change"), ("x.rate*2", "the fleet has no 'x'; it has a, b, t"),
        ("a.rate*z", "needs a number"),
        ("a.rate/0", "needs a number"), ("t.speed*2", "does not give speed"), ("rate*2", "names no field"),
        ("a.name*2", "cannot be changed so"),
    ],
)  # fmt: skip
def test_a_change_that_cannot_be_made_is_refused(expression: str, said: str) -> None:
    with pytest.raises(Invalid, match="--what-if") as caught:
        changes.changed(fields(), [expression])
    assert said in str(caught.value)
