"""Reading ignores fields of later versions, and writing rejects misspelt fields; selectors; conditions."""

from datetime import UTC, datetime, timedelta

import pytest

from orion.crds.conditions import MESSAGE_MAX, ConditionType, with_condition
from orion.crds.device import GPUDevice, device_name
from orion.crds.selectors import LabelSelector, Matcher
from orion.crds.share import GPUShare
from orion.errors import Unreadable

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_unknown_fields_are_ignored_on_reading_and_rejected_on_writing() -> None:
    plain = {"metadata": {"name": "a", "managedFields": []}, "spec": {"priority": "be", "colour": "red"}}
    assert GPUShare.read(plain).spec.plain() == {"priority": "be", "failClosed": False}
    with pytest.raises(Unreadable, match=r"^GPUShare a: spec\.colour: there is no such field$"):
        GPUShare.read_strictly(plain, "GPUShare a")


def test_a_share_from_before_a_rule_is_read_and_not_written_again() -> None:
    memory = {"request": "1Gi", "limit": "2Gi"}
    plain = {"metadata": {"name": "a"}, "spec": {"priority": "be", "memory": memory}}
    assert GPUShare.read(plain).spec.plain()["memory"] == memory
    with pytest.raises(
        Unreadable, match=r"set spec\.memory\.oversubscribe to park or unified, or set request and limit to the same"
    ):
        GPUShare.read_strictly(plain)


def test_an_unknown_way_to_oversubscribe_is_refused_in_a_sentence() -> None:
    memory = {"limit": "2Gi", "oversubscribe": "swap"}
    with pytest.raises(Unreadable) as refused:
        GPUShare.read_strictly({"metadata": {"name": "a"}, "spec": {"priority": "be", "memory": memory}})
    assert str(refused.value) == ("spec.memory.oversubscribe: Input should be 'none', 'park' or 'unified', not 'swap'")


def test_metadata_keeps_unknown_fields() -> None:
    share = GPUShare.read({"metadata": {"name": "a", "finalizers": ["x"]}, "spec": {"priority": "be"}})
    assert share.plain()["metadata"] == {"name": "a", "finalizers": ["x"]}


@pytest.mark.parametrize("plain", [None, [], "x", {}, {"metadata": {"name": "a"}, "spec": []}, {"spec": {}}])
def test_a_value_that_is_not_an_object_is_an_error(plain: object) -> None:
    with pytest.raises(Unreadable) as refused:
        GPUShare.read(plain)
    assert "\n" not in str(refused.value)


def test_a_gpus_object_is_named_by_its_uuid_in_lower_case() -> None:
    uuid = "GPU-5E4F6a2c-0d1b-4c3a-9f8e-7b6a5d4c3b2a"
    assert GPUDevice.read({"metadata": {"name": device_name(uuid)}}).spec.mode == "timeslice"
    with pytest.raises(Unreadable, match=r"^metadata\.name must be the GPU's UUID in lower case"):
        GPUDevice.read({"metadata": {"name": "gpu-0"}})


@pytest.mark.parametrize(
    ("selector", "labels", "matches"),
    [
        ({}, {}, True),
        ({"matchLabels": {"app": "a"}}, {"app": "a", "x": "y"}, True),
        ({"matchLabels": {"app": "a"}}, {"app": "b"}, False),
        ({"matchLabels": {"app": ""}}, {}, False),
        ({"matchExpressions": [{"key": "t", "operator": "In", "values": ["a", "b"]}]}, {"t": "b"}, True),
        ({"matchExpressions": [{"key": "t", "operator": "In", "values": ["a"]}]}, {}, False),
        ({"matchExpressions": [{"key": "t", "operator": "NotIn", "values": ["a"]}]}, {}, True),
        ({"matchExpressions": [{"key": "t", "operator": "NotIn", "values": ["a"]}]}, {"t": "a"}, False),
        ({"matchExpressions": [{"key": "t", "operator": "Exists"}]}, {"t": ""}, True),
        ({"matchExpressions": [{"key": "t", "operator": "DoesNotExist"}]}, {"t": ""}, False),
        ({"matchLabels": {"app": "a"}, "matchExpressions": [{"key": "t", "operator": "Exists"}]}, {"app": "a"}, False),
    ],
)
def test_a_selector_matches_as_in_kubernetes(selector: object, labels: dict[str, str], matches: bool) -> None:
    assert Matcher(LabelSelector.read_strictly(selector)).matches(labels) is matches


def test_a_condition_keeps_its_time_and_its_place_while_its_status_stays() -> None:
    first = with_condition([], ConditionType.READY, False, "Waiting", "no pod", 1, NOW)
    both = with_condition(first, ConditionType.DEGRADED, None, "Unknown", now=NOW)
    later = with_condition(both, ConditionType.READY, False, "NoPods", "none", 2, NOW + timedelta(hours=1))
    assert [each.type for each in later] == ["Ready", "Degraded"]
    assert (later[0].last_transition_time, later[0].reason) == ("2026-01-02T03:04:05Z", "NoPods")
    turned = with_condition(later, ConditionType.READY, True, "Granted", "", 2, NOW + timedelta(hours=1))
    assert turned[0].last_transition_time == "2026-01-02T04:04:05Z"
    assert with_condition(turned, ConditionType.READY, True, "Granted", "", 2) == turned


def test_a_long_message_is_cut() -> None:
    (made,) = with_condition([], ConditionType.READY, True, "Granted", "x" * 5_000)
    assert len(made.message) == MESSAGE_MAX
