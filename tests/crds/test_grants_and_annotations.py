"""Grants and annotations: the node agent reads what the operator writes, even if the operator is newer."""

import contextlib
import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from orion.crds import annotations
from orion.crds.grant import ContainerGrant, GrantedPolicy, PodGrant, granted
from orion.crds.policy import PolicyName, Priority
from orion.crds.share import GPUShare
from orion.errors import Unreadable

HP = """
metadata: {name: serve, uid: u-1, generation: 4}
spec:
  priority: hp
  policy: orion
  maxSlowdown: 1.3
  compute: {request: 0.6, limit: 0.8}
  memory: {limit: 8Gi}
  smShare: 1
  failClosed: true
  tuning: {window: 0.5ms, linger: {floor: 20us}, sharingCost: 1.07, overlapSMs: 66, longKernel: 5ms}
"""
BE = """
metadata: {name: train}
spec: {priority: be, compute: {request: 0.4}, memory: {request: 1Gi, limit: 2GB, oversubscribe: park}}
"""


def share(text: str) -> GPUShare:
    return GPUShare.read_strictly(yaml.safe_load(text))


def test_a_share_becomes_a_grant_in_the_units_of_the_pages() -> None:
    assert granted(Priority.HP, share(HP), {"app": 2}) == PodGrant(
        priority=Priority.HP,
        share="serve",
        share_uid="u-1",
        share_generation=4,
        fail_closed=True,
        policy=GrantedPolicy(
            policy=PolicyName.ORION,
            max_slowdown_milli=1_300,
            sharing_cost_milli=1_070,
            request_milli=600,
            window_us=500,
            linger_floor_us=20,
            linger_ceiling_us=2_000,
            overlap_sms=66,
            long_kernel_us=5_000,
        ),
        containers={
            "app": ContainerGrant(
                slots=2,
                memory_limit_bytes=8 * 2**30,
                memory_request_bytes=8 * 2**30,
                memory_wait_ms=30_000,
                compute_request_milli=600,
                compute_limit_milli=800,
                sm_share_milli=1_000,
            )
        },
    )


def test_a_be_grant_has_no_policy() -> None:
    grant = granted(Priority.BE, share(BE), {"a": 1, "b": 1})
    assert grant.policy is None
    assert grant.containers["a"] == grant.containers["b"]
    assert grant.containers["a"].compute_request_milli == 400
    assert grant.containers["a"].memory_limit_bytes == 2 * 10**9
    assert grant.containers["a"].memory_request_bytes == 2**30
    assert grant.containers["a"].memory_parks is True
    assert grant.containers["a"].memory_wait_ms is None


@pytest.mark.parametrize(("allowed", "probed", "parks"), [
    (None, False, True), (None, True, None), (False, True, None), (True, True, True), (True, False, True),
])  # fmt: skip
def test_a_pod_with_a_liveness_probe_parks_only_where_its_share_allows_it(
    allowed: bool | None, probed: bool, parks: bool | None
) -> None:
    memory = {"limit": "8Gi", "oversubscribe": "park", "parkWithLivenessProbe": allowed}
    made = GPUShare.read({"metadata": {"name": "a"}, "spec": {"priority": "be", "memory": memory}})
    assert granted(Priority.BE, made, {"a": 1}, probed=probed).containers["a"].memory_parks is parks


@pytest.mark.parametrize(("written", "granted_value"), [(None, None), (False, None), (True, True)])
def test_the_agent_knows_which_pods_may_be_evicted(written: bool | None, granted_value: bool | None) -> None:
    memory = {"limit": "8Gi", "oversubscribe": "park", "evictUnparked": written}
    made = GPUShare.read({"metadata": {"name": "a"}, "spec": {"priority": "be", "memory": memory}})
    assert granted(Priority.BE, made, {"a": 1}).containers["a"].memory_evict_unparked is granted_value


def test_a_slot_that_gives_nothing_back_is_not_parked() -> None:
    for memory in ("{limit: 8Gi}", "{limit: 8Gi, oversubscribe: none}"):
        made = share(f"{{metadata: {{name: a}}, spec: {{priority: be, memory: {memory}}}}}")
        assert granted(Priority.BE, made, {"a": 1}).containers["a"].memory_parks is None


def test_memory_that_moves_is_granted_to_be_only_and_is_not_parked() -> None:
    made = share(
        "{metadata: {name: a}, spec: {priority: be, memory: {request: 1Gi, limit: 8Gi, oversubscribe: unified}}}"
    )
    granted_be = granted(Priority.BE, made, {"a": 1}).containers["a"]
    assert (granted_be.memory_unified, granted_be.memory_parks) == (True, None)
    assert (granted_be.memory_request_bytes, granted_be.memory_limit_bytes) == (2**30, 2**33)
    assert granted(Priority.BE, share(BE), {"a": 1}).containers["a"].memory_unified is None


@pytest.mark.parametrize(("wait", "milliseconds"), [("0s", 0), ("1us", 1), ("250ms", 250), ("10m", 600_000)])
def test_hp_waits_as_long_as_its_share_says(wait: str, milliseconds: int) -> None:
    made = share(f"{{metadata: {{name: a}}, spec: {{priority: hp, memory: {{wait: {wait}}}}}}}")
    assert granted(Priority.HP, made, {"a": 1}).containers["a"].memory_wait_ms == milliseconds


def test_a_grant_of_an_earlier_operator_parks_nothing_and_waits_for_nothing() -> None:
    grant = PodGrant.from_json('{"priority":"be","containers":{"a":{"memoryLimitBytes":4096}}}')
    assert (grant.containers["a"].memory_parks, grant.containers["a"].memory_wait_ms) == (None, None)


def test_without_a_share_a_grant_sets_no_limits() -> None:
    grant = granted(Priority.HP, None, {"app": 1})
    assert json.loads(grant.as_json()) == {
        "format": PodGrant.FORMAT, "priority": "hp", "failClosed": False,
        "containers": {"app": {"slots": 1, "memoryWaitMs": 30_000}},
    }  # fmt: skip


@pytest.mark.parametrize("text", [HP, BE])
def test_a_grant_is_read_as_it_was_written_and_equal_grants_are_equal_text(text: str) -> None:
    made = share(text)
    grant = granted(made.spec.priority, made, {"b": 1, "a": 2})
    assert PodGrant.from_json(grant.as_json()) == grant
    assert granted(made.spec.priority, made, {"a": 2, "b": 1}).as_json() == grant.as_json()
    assert "\n" not in grant.as_json()


def test_fields_of_a_later_operator_are_ignored() -> None:
    plain = json.loads(granted(Priority.HP, share(HP), {"app": 1}).as_json())
    plain["colour"] = plain["policy"]["colour"] = plain["containers"]["app"]["colour"] = "red"
    assert PodGrant.from_json(json.dumps(plain)) == granted(Priority.HP, share(HP), {"app": 1})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "it is not JSON"),
        ("[" * 100_000, "it is not JSON"),
        ("[]", "grant"),
        ('{"priority":"mid"}', "grant: priority"),
        ('{"priority":"hp","format":99}', "format 99 is later"),
        ('{"priority":"hp","containers":{"a":{"slots":0}}}', "containers.a.slots"),
        ('{"priority":"hp","containers":{"a":{"memoryWaitMs":-1}}}', "containers.a.memoryWaitMs"),
        ('{"priority":"hp","policy":{"windowUs":1e9}}', "policy.windowUs"),
    ],
)
def test_an_invalid_grant_is_an_error(text: str, expected: str) -> None:
    with pytest.raises(Unreadable) as refused:
        PodGrant.from_json(text)
    assert expected in str(refused.value)


MEMBERS = st.sampled_from(["priority", "containers", "policy", "app", "slots", "format"])
ATOMS = st.none() | st.booleans() | st.integers() | st.text()
JSON = st.recursive(ATOMS, lambda part: st.lists(part) | st.dictionaries(MEMBERS, part), max_leaves=8)


@given(JSON)
def test_any_json_is_a_grant_or_refused(plain: Any) -> None:
    with contextlib.suppress(Unreadable):
        assert PodGrant.from_json(json.dumps(plain)).priority in list(Priority)


def test_annotations_of_a_pods_owner() -> None:
    marks = annotations.read_marks({"orion/priority": "be", "orion/share": "train", "orion/containers": "a, b"})
    assert (marks.priority, marks.share, marks.containers) == (Priority.BE, "train", ("a", "b"))
    assert annotations.read_marks({"else": "x"}) == annotations.PodMarks()


@pytest.mark.parametrize(
    ("name", "value"),
    [("orion/priority", "high"), ("orion/priority", ""), ("orion/share", "Not A Name"), ("orion/share", ""),
     ("orion/containers", "a,,b"), ("orion/containers", "a,a"), ("orion/containers", "")],
)  # fmt: skip
def test_an_invalid_annotation_is_named(name: str, value: str) -> None:
    with pytest.raises(Unreadable, match=name):
        annotations.read_marks({name: value})
