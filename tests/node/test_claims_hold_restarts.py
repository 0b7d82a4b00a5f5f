"""A container of a claim restarts while the agent is away: it waits if its pod must be held, and only then."""

import contextlib
import json
import subprocess
import time
from collections.abc import Iterator

import pytest

from testbed.node import Node
from testbed.orion import Orion
from tests.node.claimed_gpus import CDI, Claims, claiming, files, held, until_nothing_is_left
from tests.node.gpu_tenants import GpuNode, Tenants, share, training
from tests.waiting import eventually

pytestmark = pytest.mark.node

MIB = 1 << 20
BACK_SECONDS = 2.0 * 10  # the target is two seconds; test machines are shared
PROGRAM = "orion-await-agent"


@pytest.fixture
def usual_after(orion: Orion, node: Node) -> Iterator[None]:
    """Afterwards, an agent runs, and the configuration is the usual one again."""
    yield
    if not orion.runs(node, "agent"):
        orion.begin_agent(node)
    orion.configure({})


def processes(node: Node, name: str) -> list[str]:
    with contextlib.suppress(subprocess.CalledProcessError):
        return node.run(["pgrep", "-x", name[:15]]).split()  # the kernel keeps no more of a name
    return []


def workloads(node: Node) -> list[str]:
    return processes(node, "workload")


def waiting(node: Node) -> list[str]:
    return processes(node, PROGRAM)


def kill_workload(node: Node) -> None:
    before = workloads(node)
    node.run(["pkill", "-KILL", "-x", "workload"])
    eventually(lambda: not set(before) & set(workloads(node)), what="the program ends")


def hooks(node: Node) -> list[str]:
    """The programs that the CDI files of all claims name."""
    specifications = [json.loads(node.run(["cat", f"{CDI}/{name}"])) for name in files(node, CDI)]
    edits = (device["containerEdits"] for each in specifications for device in each["devices"])
    return [hook["path"].rpartition("/")[2] for each in edits for hook in each.get("hooks", ())]


def events(tenants: Tenants) -> list[str]:
    return [each.message or "" for each in tenants.core.list_namespaced_event(tenants.namespace).items]


def begin(tenants: Tenants, claims: Claims) -> None:
    claim, pod = claiming(training(memory=MIB), "be")
    claims.create(claim)
    tenants.create(pod)
    tenants.begun("train")


def test_a_restart_waits_for_an_agent_only_while_its_pod_is_held(
    tenants: Tenants, claims: Claims, gpus: GpuNode, node: Node, orion: Orion, usual_after: None
) -> None:
    begin(tenants, claims)
    slots = held(gpus)
    assert hooks(node) == []
    orion.end(node, "agent", 0)
    kill_workload(node)
    eventually(lambda: workloads(node), what="it runs again while no agent runs, as onNoAgent is start")
    orion.begin_agent(node)
    orion.configure({"onNoAgent": "hold"})
    eventually(lambda: hooks(node) == [PROGRAM], what="the claim's CDI file names the program")
    orion.end(node, "agent", 0)
    kill_workload(node)
    tenants.hurry("train")
    eventually(lambda: waiting(node), what="the container runtime runs the program")
    orion.begin_agent(node)
    eventually(lambda: held(gpus), what="the agent answers")
    began = time.monotonic()
    eventually(lambda: workloads(node), what="the container runs again")
    assert time.monotonic() - began < BACK_SECONDS
    tenants.begun("train")
    ((device, _),) = slots.items()
    eventually(lambda: len(gpus.slot(device).clients) == 1, what="the program joins")
    assert held(gpus) == slots
    tenants.delete("train")
    until_nothing_is_left(gpus, node)


@pytest.mark.usefixtures("claiming_webhook")
def test_a_fail_closed_pod_restarts_only_when_an_agent_answers(
    tenants: Tenants, gpus: GpuNode, node: Node, orion: Orion, usual_after: None
) -> None:
    train = training(memory=MIB)
    tenants.create(share(train, failClosed=True), train)
    tenants.begun("train")
    eventually(lambda: hooks(node) == [PROGRAM], what="the claim's CDI file names the program")
    orion.end(node, "agent", 0)
    kill_workload(node)
    tenants.hurry("train")
    eventually(lambda: waiting(node), what="the container runtime runs the program")
    assert not workloads(node)
    orion.begin_agent(node)
    tenants.begun("train")
    ((device, _),) = eventually(lambda: held(gpus), what="the new agent knows who has the slot").items()
    eventually(lambda: len(gpus.slot(device).clients) == 1, what="the program joins")
    tenants.delete("train")
    until_nothing_is_left(gpus, node)


def test_a_pod_that_waits_when_the_driver_ends_says_so_and_starts_under_the_next(
    tenants: Tenants, claims: Claims, gpus: GpuNode, node: Node, orion: Orion, usual_after: None
) -> None:
    log = f"{node.name}-driver"
    begun = len(orion.log(log))  # earlier tests have the same lines
    orion.configure({"onNoAgent": "hold"})
    # The last line counts: the driver may not have seen that an earlier test changed it back.
    eventually(lambda: orion.log(log).rpartition("onNoAgent ")[2].startswith("hold"))
    orion.end(node, "agent", 0)
    eventually(lambda: "agent: disconnected" in orion.log(log)[begun:])
    claim, pod = claiming(training(memory=MIB), "be")
    claims.create(claim)
    tenants.create(pod)
    eventually(lambda: f"{tenants.namespace}/train waits for an agent" in orion.log(log))
    orion.end(node, "driver")
    eventually(lambda: [each for each in events(tenants) if "the DRA driver ends; the kubelet tries again" in each])
    orion.begin_agent(node)
    orion.begin_driver(node)
    tenants.begun("train")
    tenants.delete("train")
    until_nothing_is_left(gpus, node)
