"""Clients in slots of one pod, or of a claim whose pods share it, belong to one job."""

import contextlib
import json
from collections.abc import Iterator
from ctypes import sizeof
from pathlib import Path

import pytest

from orion.hook import layout
from orion.node_agent.api import agent_pb2
from orion.node_agent.api.client import AgentClient
from orion.node_agent.slots.claim import remembered_claim
from tests.node_agent.agent_in_cluster import Node, grant
from tests.node_agent.conftest import GPU, AgentProcess, eventually
from tests.node_agent.job_ranks import rank, receives_no_job, same_memory, words_of

SECOND = GPU[:-1] + "1"


@pytest.fixture
def cluster(stopped_agent: AgentProcess, socket_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    """An agent of two GPUs."""
    monkeypatch.setenv("ORION_SIM_GPUS", "2")
    made = Node(stopped_agent, socket_folder)
    made.start()
    yield made
    made.stop()


@pytest.fixture
def stack(cluster: Node) -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as stack:
        yield stack


def test_clients_of_one_pod_get_one_page_even_if_the_pod_is_known_late(
    cluster: Node, stack: contextlib.ExitStack
) -> None:
    clients = [rank(stack, cluster.agent.slot("be-0", gpu)) for gpu in (GPU, SECOND)]
    outside = rank(stack, cluster.agent.slot("be-1"))
    assert all(receives_no_job(client) for client in clients)
    cluster.pods.put("a", grant())
    cluster.pods.put("b", grant())
    cluster.kubelet.give("a", (GPU, "be-0"), (SECOND, "be-0"))
    cluster.kubelet.give("b", (GPU, "be-1"))
    cluster.prepare_once("be-5")  # the agent asks the kubelet about all slots
    pages = [client.receive_job()[1] for client in clients]
    assert same_memory(*pages)
    assert receives_no_job(outside)


def claim(name: str, *pods: str) -> agent_pb2.ClaimOfSlot:
    named = [agent_pb2.PodOfClaim(name=pod, uid=f"uid-{pod}") for pod in pods]
    return agent_pb2.ClaimOfSlot(uid=f"uid-{name}", namespace="default", name=name, pods=named)


@pytest.mark.parametrize("driver_has_read", [False, True])
def test_a_job_goes_on_when_the_first_pod_of_its_claim_has_ended(
    cluster: Node, stack: contextlib.ExitStack, driver_has_read: bool
) -> None:
    for pod, limit in (("a", 900), ("b", 700)):
        cluster.pods.put(pod, grant(memoryLimitBytes=limit))
    with AgentClient(cluster.agent.root) as administrator:
        for gpu in (GPU, SECOND):
            administrator.hold_slot(gpu, "be-0", claim("shared", "a", "b"))
        one, other = (rank(stack, cluster.agent.slot("be-0", gpu)) for gpu in (GPU, SECOND))
        (here, page), _ = one.receive_job(), other.receive_job()
        words_of(page, here)[:] = b"\1" * sizeof(layout.Rank)
        eventually(lambda: cluster.slot("be-0").memory_limit_bytes == 900, "the first pod's grant applies")
        cluster.pods.put("a", grant(memoryLimitBytes=900), ended=True)
        if driver_has_read:
            for gpu in (GPU, SECOND):
                administrator.hold_slot(gpu, "be-0", claim("shared", "b"), had_it=True)
    eventually(lambda: cluster.slot("be-0").memory_limit_bytes == 700, "the pod that is left decides")
    assert same_memory(page, rank(stack, cluster.agent.slot("be-0", SECOND)).receive_job()[1])
    assert bytes(words_of(page, here)) == b"\1" * sizeof(layout.Rank)
    assert receives_no_job(one)


def test_a_pod_with_a_claim_for_each_gpu_is_one_job(cluster: Node, stack: contextlib.ExitStack) -> None:
    with AgentClient(cluster.agent.root) as administrator:
        for gpu in (GPU, SECOND):
            administrator.hold_slot(gpu, "be-0", claim(f"for {gpu}", "a"))
            administrator.hold_slot(gpu, "be-1", claim(f"another for {gpu}", f"of {gpu}"))
    outside = [rank(stack, cluster.agent.slot("be-1", gpu)) for gpu in (GPU, SECOND)]
    pages = [rank(stack, cluster.agent.slot("be-0", gpu)) for gpu in (GPU, SECOND)]
    assert same_memory(*(client.receive_job()[1] for client in pages))
    assert all(receives_no_job(client) for client in outside)


def test_claims_that_an_earlier_version_saved_stay_one_job() -> None:
    earlier = {"share": "be", "namespace": "team", "name": "c", "pods": [{"name": "a", "uid": "uid-a"}]}
    claims = [remembered_claim(json.dumps(earlier | {"uid": uid})) for uid in ("one", "other")]
    assert [each.job for each in claims if each] == ["pod with uid uid-a"] * 2
