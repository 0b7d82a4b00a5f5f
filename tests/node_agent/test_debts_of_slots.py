"""Debts of be slots: a program that ends leaves them to the slot's next one, and the next owner has none."""

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orion.hook import layout
from orion.node_agent.agent import Agent
from orion.node_agent.api import agent_pb2
from orion.node_agent.cluster.holders.grants import Grants
from orion.node_agent.cluster.holders.resolving import ResolvedHolder
from orion.node_agent.service.server import AgentService
from orion.node_agent.sharing import windows
from orion.node_agent.sharing.account import Account
from orion.node_agent.slots.holders import Holder, Holders, Prepared
from orion.node_agent.slots.slot import Slot
from tests.node_agent.one_gpu import GPU, agent_of_one_gpu

MS = 1_000_000
Look = Callable[[], dict[str, float]]


@pytest.fixture
async def agent() -> AsyncIterator[Agent]:
    with agent_of_one_gpu() as made:
        yield made


@pytest.fixture
def look(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> Look:
    """Look after 100 ms more; return the debts of all slots that have an account."""
    served, now = agent.gpu(GPU), [0]
    monkeypatch.setattr(windows, "time", SimpleNamespace(monotonic_ns=lambda: now[0]))

    def look_later() -> dict[str, float]:
        now[0] += 100 * MS
        served.look(now[0])
        return {name: account.debt_ns / MS for name, account in served.turns.accounts.items()}

    look_later()
    return look_later


def owe(agent: Agent, **debts_ms: float) -> None:
    """Let slots have debts, as if their last client had just left."""
    for name, debt_ms in debts_ms.items():
        agent.gpu(GPU).turns.accounts[name.replace("_", "-")] = Account(balance_ns=-debt_ms * MS)


async def test_a_slot_without_clients_pays_its_debt_at_the_rate_of_its_share_and_is_then_forgotten(
    agent: Agent, look: Look
) -> None:
    agent.slots.set_grant(GPU, "be-0", request_milli=200)
    agent.slots.set_grant(GPU, "be-1", request_milli=800)
    agent.slots.set_grant(GPU, "be-2", limit_milli=500)  # so slots take turns
    owe(agent, be_0=100, be_1=1_000)
    look()  # reads the requests
    assert look() == pytest.approx({"be-0": 100 - 50 - 20, "be-1": 1_000 - 50 - 80, "be-2": 0})
    assert agent.gpu(GPU).turns.plans.keys() == {"be-0", "be-1", "be-2"}, "its next client asks before it launches"
    for _ in range(20):
        debts = look()
    assert debts == {"be-2": 0}
    assert agent.gpu(GPU).turns.plans.keys() == {"be-2"}


@pytest.mark.parametrize(
    ("first_uid", "others", "debt_ms"),
    [
        ("first", [("a-pod", "first")], 900),
        ("first", [("a-pod", ""), ("a-pod", "first")], 900),
        ("first", [("a-pod", ""), ("a-pod", "second")], 0),
        ("first", [("b-pod", "")], 0),
        ("", [("b-pod", ""), ("b-pod", "second")], 0),
        ("", [("a-pod", ""), ("a-pod", "second")], 0),
    ],
    ids=["same", "same-by-name-first", "made-again", "other-while-operator-is-away", "unknown", "perhaps-same"],
)
async def test_a_container_that_restarts_in_its_pod_keeps_the_debt_and_another_pod_has_none(
    agent: Agent, look: Look, first_uid: str, others: list[tuple[str, str]], debt_ms: float
) -> None:
    grants = Grants(agent)
    known(grants, "a-pod", first_uid)
    owe(agent, be_0=1_000)
    await starts(agent, grants)
    for pod, uid in others:
        known(grants, pod, uid)
    assert look().get("be-0", 0) == pytest.approx(debt_ms)


@pytest.mark.parametrize("policy", [layout.PolicyKind.NONE, layout.PolicyKind.GATE])
async def test_while_it_is_not_known_whose_container_starts_no_debt_is_paid(
    agent: Agent, look: Look, policy: layout.PolicyKind
) -> None:
    served, grants = agent.gpu(GPU), Grants(agent)
    served.set_policy(replace(served.shared_gpu.policy, kind=policy))
    known(grants, "a-pod", "first")
    agent.slots.set_grant(GPU, "be-0", limit_milli=200)
    owe(agent, be_0=1_000)
    assert look()["be-0"] > 800
    owe(agent, be_0=1_000)
    for _ in range(2):
        await starts(agent, grants, look)
    known(grants, "a-pod", "first")
    agent.slots.set_grant(GPU, "be-0", limit_milli=200)
    assert look()["be-0"] > 800


async def test_outside_a_cluster_the_next_container_has_no_debt(agent: Agent, look: Look) -> None:
    owe(agent, be_0=1_000)
    await prepare(agent)
    assert look().get("be-0", 0) == 0


def known(grants: Grants, pod: str, uid: str) -> None:
    """Let be-0 be held by a container of a pod."""
    grants.apply({(GPU, "be-0"): ResolvedHolder(Holder("n", pod, "main", uid))}, frozenset(), True)


async def starts(agent: Agent, grants: Grants, meanwhile: Callable[[], object] = lambda: None) -> None:
    """Start a container in be-0, as the kubelet does; its pod is not known yet."""

    async def prepared(slot: Slot) -> Prepared:
        grants.apply({}, frozenset({(slot.gpu, slot.name)}), False)
        meanwhile()
        return Prepared()

    agent.holders = cast("Holders", SimpleNamespace(prepared=prepared))
    await prepare(agent)


async def prepare(agent: Agent) -> None:
    """Prepare be-0 for a container, as the device plugin asks for it."""
    request = agent_pb2.SlotRequest(gpu=GPU, name="be-0")
    await AgentService(agent).PrepareSlot(request, cast("Any", SimpleNamespace(time_remaining=lambda: None)))


@pytest.mark.parametrize("limit_milli", [0, 500])
async def test_a_slot_that_is_prepared_for_another_container_has_no_debt(
    agent: Agent, look: Look, limit_milli: int
) -> None:
    owe(agent, be_0=1_000)
    assert look()["be-0"] > 800
    agent.slots.prepare(GPU, "be-0")
    agent.slots.set_grant(GPU, "be-0", limit_milli=limit_milli)
    assert look().get("be-0", 0) == 0


async def test_a_slot_that_is_opened_with_the_name_of_a_closed_one_has_no_debt(agent: Agent, look: Look) -> None:
    for _ in range(2):
        agent.slots.open(GPU, "own", layout.Role.BE, 0, 0, limit_milli=500)
        assert look()["own"] == 0
        owe(agent, own=1_000)
        assert look()["own"] > 800
        agent.slots.close(GPU, "own")
