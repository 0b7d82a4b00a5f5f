"""A hostile pod (root with a container's default capabilities) does not disturb the hp and the be pod beside it.

It attacks the socket, the pages and the mounts of its slot, the node's other slots and processes, the agent's metrics
and the kernel's limits that all containers of root share. Another pod joins during the attacks. Afterwards the hostile
pod stays with invalid values in its pages, while the agent writes its GPUDevices and restarts.
"""

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from testbed.node import Node
from testbed.orion import AGENT_PORT, Orion
from testbed.process_costs import cpu_seconds
from tests.node import hostile_image
from tests.node.disturbed_pods import Occupants
from tests.node.gpu_tenants import GpuNode, Manifest, Tenants, advertising, serving, training
from tests.node.slot_bookkeeping import SlotBookkeeping
from tests.waiting import eventually

pytestmark = pytest.mark.node

ATTACKS_SECONDS = 6
HOSTILE = "hostile"
MEMORY_GROWTH = 96 << 20
CPU_SHARE = 0.9
""" Part of one core. asyncio uses at most one core, and an agent that can barely keep up would use all of it. """


@dataclass(frozen=True)
class Burden:
    """The resources that an agent's process uses."""

    memory_bytes: int
    descriptors: int
    cpu_seconds: float
    at: float

    @classmethod
    def of(cls, process_id: int) -> "Burden":
        process = Path(f"/proc/{process_id}")
        pages = int((process / "statm").read_text().split()[1])
        descriptors = len(os.listdir(process / "fd"))
        return cls(pages * os.sysconf("SC_PAGE_SIZE"), descriptors, cpu_seconds(process_id), time.monotonic())

    def cpu_share_since(self, before: "Burden") -> float:
        return (self.cpu_seconds - before.cpu_seconds) / (self.at - before.at)


@pytest.fixture
def one_gpu(orion: Orion, node: Node, tmp_path: Path) -> Iterator[None]:
    """The node advertises only its first GPU, so all pods are neighbours. It has the image of the hostile program."""
    node.import_image(hostile_image.image().write(tmp_path / "hostile.tar"))
    with advertising(orion, node, {"gpus": ["0"]}, hp=1, be=8):
        yield


@pytest.fixture
def neighbours(one_gpu: None, node: Node, api: client.ApiClient, namespace: str) -> Occupants:
    """An hp pod and a be pod that compute on the node's only advertised GPU."""
    occupants = Occupants(Tenants(api, namespace), GpuNode(node, api), SlotBookkeeping(node, api))
    occupants.create(serving(report=0.2), training(report=0.2))
    return occupants


def hostile_pod(node: Node) -> Manifest:
    container: dict[str, Any] = {
        "name": "main",
        "image": hostile_image.NAME,
        "args": [str(ATTACKS_SECONDS), node.address, str(AGENT_PORT)],
        "securityContext": {"runAsUser": 0},
        "resources": {"requests": {"cpu": "10m"}, "limits": {"orion.gpu/be": "1", "memory": "1Gi", "cpu": "1"}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": HOSTILE, "labels": {"app": HOSTILE}, "annotations": {"orion/priority": "be"}},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 1},
    }


def wait_for(tenants: Tenants, event: str) -> dict[str, Any]:
    """Wait for the hostile program's line with this event, and return it."""
    lines: list[dict[str, Any]] = eventually(
        lambda: [line for line in _lines(tenants) if line["event"] == event], f"the hostile pod prints {event!r}"
    )
    return lines[0]


def _lines(tenants: Tenants) -> list[dict[str, Any]]:
    return [json.loads(line) for line in tenants.log(HOSTILE).splitlines() if line.startswith("{")]


def errors(occupants: Occupants) -> list[dict[str, Any]]:
    return [line for name in occupants.pods for line in occupants.pods[name].printed("error")]


def test_neighbours_of_a_hostile_root_are_not_disturbed(orion: Orion, node: Node, neighbours: Occupants) -> None:
    tenants, gpus = neighbours.tenants, neighbours.gpus
    clients, agent = neighbours.clients(), orion.pids()[f"orion/{node.name}-agent"]
    before = Burden.of(agent)

    tenants.create(hostile_pod(node))
    attacking = wait_for(tenants, "attacking")
    assert attacking["user"] == 0
    begun = Burden.of(agent)
    neighbours.create(training("late", report=0.2))
    clients |= {"late": neighbours.pods["late"].joined_client()}
    neighbours.compute()
    assert wait_for(tenants, "over")["reached"] == []
    assert Burden.of(agent).cpu_share_since(begun) < CPU_SHARE

    holding = wait_for(tenants, "holding")
    assert holding["half_joined"] > 0
    neighbours.compute()
    assert neighbours.clients() == clients
    assert errors(neighbours) == []
    (uuid,) = {joined.gpu for joined in clients.values()}

    def shown() -> bool:
        rows = gpus.devices()[uuid].get("clients", [])
        return HOSTILE in {(row.get("pod") or {}).get("name") for row in rows}

    eventually(shown, "the GPUDevice names a client of the hostile pod")
    assert "cannot be made" not in orion.log(f"{node.name}-agent")

    orion.end(node, "agent")
    orion.begin_agent(node)
    eventually(lambda: neighbours.managed() >= len(clients), "all clients join the new agent")
    assert neighbours.clients() == clients
    neighbours.compute()

    tenants.delete(HOSTILE)
    agent = orion.pids()[f"orion/{node.name}-agent"]
    eventually(lambda: Burden.of(agent).descriptors <= before.descriptors + 16, "descriptors are closed")
    assert Burden.of(agent).memory_bytes < before.memory_bytes + MEMORY_GROWTH
    neighbours.compute()
    assert neighbours.clients() == clients
    assert errors(neighbours) == []
