"""Policies that administrators set: what reaches the page, what is rejected, and with which message."""

import json
import math
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from orion.hook import layout
from orion.hook.policy_table import BENCH, RELEASE, Row
from orion.node_agent.api import agent_pb2
from orion.node_agent.api.client import AgentClient, RequestRefused
from tests.node_agent.conftest import GPU, AgentProcess, eventually
from tests.node_agent.protocol_client import ProtocolClient, current_grant, current_policy


def test_given_fields_reach_the_page_and_other_fields_keep_their_values(agent: AgentProcess) -> None:
    with ProtocolClient(agent.slot("be-0")).join() as client, AgentClient(agent.root) as administrator:
        policy = current_policy(client.policy)
        assert (policy.kind, policy.max_slowdown_milli, policy.sharing_cost_milli) == (2, 1_000, 1_000)
        assert policy.long_kernel_ns == 5_000_000
        gpu = administrator.set_policy(
            GPU, policy="gate", max_slowdown=1.2, sharing_cost=1.073, overlap_sms=60, request=0.95,
            long_kernel_us=2_000,
        )  # fmt: skip
        assert (gpu.settings.policy, gpu.settings.fields["max_slowdown"]) == ("gate", 1.2)
        policy = current_policy(client.policy)
        expected = {
            "kind": layout.PolicyKind.GATE, "max_slowdown_milli": 1_200, "sharing_cost_milli": 1_073,
            "overlap_sms": 60, "minimum_share_milli": 50, "long_kernel_ns": 2_000_000, "window_ns": 400_000,
        }  # fmt: skip
        assert {name: getattr(policy, name) for name in expected} == expected
        administrator.set_policy(GPU, window_us=500)
        policy = current_policy(client.policy)
        assert {name: getattr(policy, name) for name in expected} == expected | {"window_ns": 500_000}
        administrator.set_policy(GPU, overlap_sms=0, request=1.0)
        policy = current_policy(client.policy)
        assert (policy.overlap_sms, policy.minimum_share_milli) == (0, 0)


@pytest.mark.parametrize("row", RELEASE.rows, ids=lambda row: row.name)
def test_every_field_of_the_table_reaches_the_page_within_its_bounds(agent: AgentProcess, row: Row) -> None:
    fits: dict[str, Any] = {"linger_floor_us": 1, "linger_ceiling_us": 1_000_000} | {row.name: row.most}
    with ProtocolClient(agent.slot("be-0")).join() as client, AgentClient(agent.root) as administrator:
        for value in (row.most, row.least):
            if row.stem == "linger_ceiling":
                value = max(value, 1)
            gpu = administrator.set_policy(GPU, **(fits | {row.name: value}))
            assert gpu.settings.fields[row.name] == value
            assert getattr(current_policy(client.policy), row.word) == row.to_page(value)
        for value in (row.most * 1.1 + 1, row.least - 1):
            with pytest.raises(RequestRefused, match=f"^{row.name}: "):
                administrator.set_policy(GPU, **dict[str, Any]({row.name: value}))


@pytest.mark.parametrize("name", RELEASE.names)
def test_every_policy_can_be_set_by_its_name(agent: AgentProcess, name: str) -> None:
    with AgentClient(agent.root) as administrator:
        assert administrator.set_policy(GPU, policy=name).policy == name


@pytest.mark.parametrize("name", sorted(set(BENCH.names) - set(RELEASE.names)))
def test_the_bench_policies_are_unknown_to_a_release_agent(refusing_agent: AgentProcess, name: str) -> None:
    with AgentClient(refusing_agent.root) as administrator:
        with pytest.raises(RequestRefused, match=f"there is no policy '{name}'; there are "):
            administrator.set_policy(GPU, policy=name)
        with pytest.raises(RequestRefused, match=r"^reef_depth: "):
            administrator.set_policy(GPU, reef_depth=3)


Ask = Callable[[AgentClient], object]
REFUSED: list[tuple[Ask, str]] = [
    (lambda agent: agent.set_policy(GPU, max_slowdown=0.9), "^max_slowdown: .*equal to 1"),
    (lambda agent: agent.set_policy(GPU, max_slowdown=math.nan), "^max_slowdown: "),
    (lambda agent: agent.set_policy(GPU, max_slowdown=math.inf), "^max_slowdown: "),
    (lambda agent: agent.set_policy(GPU, sharing_cost=-1), "^sharing_cost: "),
    (lambda agent: agent.set_policy(GPU, request=0.4), "^request: .*equal to 0.5"),
    (lambda agent: agent.set_policy(GPU, request=0), "^request: .*equal to 0.5"),
    (lambda agent: agent.set_policy(GPU, request=1.5), "^request: .*equal to 1"),
    (lambda agent: agent.set_policy(GPU, request=math.nan), "^request: "),
    (lambda agent: agent.set_policy(GPU, overlap_sms=2**31), "^overlap_sms: "),
    (lambda agent: agent.set_policy(GPU, overlap_sms=1.5), "^overlap_sms: "),
    (lambda agent: agent.set_grant(GPU, "be-0", request=-1), "^request: .*equal to 0.001"),
    (lambda agent: agent.set_grant(GPU, "be-0", request=1.5), "^request: .*equal to 1"),
    (lambda agent: agent.set_grant(GPU, "be-0", request=math.nan), "^request: .*finite"),
    (lambda agent: agent.set_grant(GPU, "be-0", limit=1.5), "^limit: .*equal to 1"),
    (lambda agent: agent.set_grant(GPU, "be-0", request=0.6, limit=0.5), "^request: 0.6 is above the limit 0.5; lower"),
    (lambda agent: agent.set_grant(GPU, "hp-0", request=0.6), "^request: that of hp is a part of the GPU's policy"),
    (lambda agent: agent.open_slot(GPU, agent_pb2.BE, request=math.nan), "^request: .*finite"),
    (lambda agent: agent.open_slot(GPU, agent_pb2.BE, request=0.6, limit=0.5), "^request: 0.6 is above the limit 0.5"),
    (lambda agent: agent.open_slot(GPU, agent_pb2.HP, request=0.6), "^request: that of hp is a part of the GPU's"),
]


@pytest.mark.parametrize(("ask", "sentence"), REFUSED, ids=range(len(REFUSED)))
def test_values_out_of_bounds_are_refused(refusing_agent: AgentProcess, ask: Ask, sentence: str) -> None:
    with AgentClient(refusing_agent.root) as administrator, pytest.raises(RequestRefused, match=sentence) as refused:
        ask(administrator)
    assert refused.value.code is grpc.StatusCode.INVALID_ARGUMENT


def test_a_budget_below_the_cost_of_mps_is_refused_with_the_value(agent: AgentProcess) -> None:
    with ProtocolClient(agent.slot("hp-0")).join() as hp, AgentClient(agent.root) as administrator:
        eventually(lambda: administrator.snapshot().gpus[0].slots[0].clients, "hp has joined")
        administrator.set_policy(GPU, max_slowdown=1.05, sharing_cost=1.073)  # time-sliced: accepted
        administrator.set_policy(GPU, max_slowdown=1.0)
        hp.record.set(layout.RecordPage, "shares_context", 1)
        sentence = r"maxSlowdown 1.05 is less than the slowdown .* causes this hp: 1.073; ask for at least 1.073"
        with pytest.raises(RequestRefused, match=sentence) as refused:
            administrator.set_policy(GPU, max_slowdown=1.05)
        assert refused.value.code is grpc.StatusCode.INVALID_ARGUMENT
        assert current_policy(hp.policy).max_slowdown_milli == 1_000
        assert administrator.set_policy(GPU, max_slowdown=1.073).settings.fields["max_slowdown"] == 1.073
        assert administrator.set_policy(GPU, policy="gate", max_slowdown=1.05).policy == "gate"


def test_requests_and_limits_are_kept_over_agents_and_end_with_the_container(agent: AgentProcess) -> None:
    with ProtocolClient(agent.slot("be-1")).join() as client:
        with AgentClient(agent.root) as administrator:
            assert administrator.set_grant(GPU, "be-1", request=0.25).request == 0.25
            assert current_grant(client.grant).compute_request_milli == 250
            assert administrator.set_grant(GPU, "be-1", memory_limit_bytes=7).request == 0.25
            changed = administrator.set_grant(GPU, "be-1", request=0.3, limit=0.5)
            assert (changed.memory_limit_bytes, changed.request, changed.limit) == (7, 0.3, 0.5)
            with pytest.raises(RequestRefused, match=r"^request: 0\.6 is above the limit 0\.5"):
                administrator.set_grant(GPU, "be-1", request=0.6)
            opened = administrator.open_slot(GPU, agent_pb2.BE, request=0.4, limit=0.4)
            assert (opened.request, opened.limit) == (0.4, 0.4)
            administrator.set_policy(GPU, max_slowdown=1.5)
        agent.terminate()
        agent.start()
        client.return_to_agent()
        page = current_grant(client.grant)
        assert (page.compute_request_milli, page.compute_limit_milli) == (300, 500)
        assert current_policy(client.policy).max_slowdown_milli == 1_500
    with AgentClient(agent.root) as administrator:
        slot = administrator.prepare_slot(GPU, "be-1").slot
        assert (slot.request, slot.limit) == (0, 0)


def test_the_state_of_an_older_agent_is_used(agent: AgentProcess) -> None:
    agent.terminate()
    path = agent.root / "state.json"
    state = json.loads(path.read_text())
    (gpu,) = state["gpus"]
    old = ("kind", "window_ns", "linger_floor_ns", "linger_ceiling_ns", "stall_ns")
    gpu["policy"] = {name: gpu["policy"][name] for name in old} | {"kind": 1}
    for slot in gpu["slots"]:
        del slot["request_milli"], slot["limit_milli"]
        slot["weight_milli"] = 2_500
    path.write_text(json.dumps(state))
    agent.start()
    with AgentClient(agent.root) as administrator:
        (now,) = administrator.snapshot().gpus
        assert (now.policy, now.settings.fields["max_slowdown"], now.settings.fields["long_kernel_us"]) == (
            "gate",
            1,
            5_000,
        )
        assert {(slot.request, slot.limit) for slot in now.slots} == {(0, 0)}
