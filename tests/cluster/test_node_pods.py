"""Who gets the pods of which node from the operator: real tokens at a real API server, over TLS."""

from collections.abc import Callable, Iterator

import pytest
from kubernetes import client

from tests.cluster import node_pods_caller
from tests.cluster.conftest import FakeNode
from tests.cluster.node_pods_caller import Caller, certificates, refusal, token
from tests.cluster.operator_process import OperatorProcess, World
from tests.waiting import eventually

pytestmark = pytest.mark.cluster


@pytest.fixture
def operator(own_operator: OperatorProcess) -> OperatorProcess:
    return own_operator


@pytest.fixture
def listen(api: client.ApiClient, world: World, operator: OperatorProcess) -> Iterator[Callable[[str], Caller]]:
    """Starts a call of a node's agent, by the node's name."""
    made = []

    def start(node: str) -> Caller:
        bearer = token(api, world.namespace, node)
        made.append(Caller(lambda: operator.node_pods_port, lambda: certificates(api, world.namespace), bearer))
        return made[-1]

    yield start
    for each in made:
        each.close()


def test_an_agent_learns_of_the_pods_of_its_own_node_and_of_no_other(
    world: World, fake_node: FakeNode, listen: Callable[[str], Caller]
) -> None:
    here, there = fake_node("a"), fake_node("b")
    world.share("training", memory={"limit": "8Gi"})
    world.pod("mine", "training", here)
    world.pod("theirs", "training", there)
    world.pod("unmanaged", "training", here, priority=None)
    agent = listen(here)
    eventually(lambda: agent.pods and "mine" in agent.pods)
    assert agent.pods is not None
    assert "unmanaged" not in agent.pods  # the operator watches only pods that the webhook has labelled
    assert "theirs" not in agent.pods
    assert "8589934592" in agent.pods["mine"].grant
    made = world.read_pod("mine").metadata
    assert (agent.pods["mine"].uid, agent.pods["mine"].namespace) == (made.uid, world.namespace)
    assert agent.pods["mine"].created == made.creation_timestamp.strftime("%Y-%m-%dT%H:%M:%SZ")

    before = agent.messages
    world.change_share("training", memory={"limit": "4Gi"})
    eventually(lambda: agent.pods and "4294967296" in agent.pods["mine"].grant)
    world.run("mine")
    world.end("mine")
    eventually(lambda: agent.pods and agent.pods["mine"].ended)
    assert agent.pods["mine"].grant == ""
    world.delete_pod("mine")
    eventually(lambda: agent.pods is not None and "mine" not in agent.pods)
    assert agent.messages - before == 3  # that the pod runs changes nothing for its agent
    assert agent.ends == []
    assert world.read_pod("theirs").metadata.annotations == {"orion/priority": "be"}  # nothing is written into pods


def test_only_an_agents_token_of_a_node_opens_the_door(
    api: client.ApiClient, world: World, operator: OperatorProcess, fake_node: FakeNode
) -> None:
    node, port, namespace = fake_node("a"), operator.node_pods_port, world.namespace
    client.CoreV1Api(api).create_namespaced_service_account(namespace, {"metadata": {"name": "tenant"}})
    trusted = certificates(api, namespace)

    def refused(bearer: str | None) -> tuple[str, str]:
        return refusal(port, trusted, bearer)

    assert refused(token(api, namespace, node)) == ("", "")
    for bearer in (None, "", "x", "a.b.c"):
        assert refused(bearer)[0] == "UNAUTHENTICATED", bearer
    status, text = refused(token(api, namespace, node, audience="https://kubernetes.default.svc"))
    assert (status, "does not accept the token for the audience orion-operator" in text) == ("UNAUTHENTICATED", True)
    status, text = refused(token(api, namespace, node, account="tenant"))
    assert (status, f"the token is of system:serviceaccount:{namespace}:tenant" in text) == ("PERMISSION_DENIED", True)
    status, text = refused(token(api, namespace))
    assert (status, "names no node" in text) == ("PERMISSION_DENIED", True)

    gone = token(api, namespace, node)
    pods = client.CoreV1Api(api)
    for each in pods.list_namespaced_pod(namespace).items:
        pods.delete_namespaced_pod(each.metadata.name, namespace, grace_period_seconds=0)
    eventually(lambda: refused(gone)[0] == "UNAUTHENTICATED")  # its pod is gone, and so the token is not valid any more
    assert "x" * 40 not in operator.log.read_text()


def test_a_caller_that_trusts_other_certificates_sends_no_token(
    api: client.ApiClient, world: World, operator: OperatorProcess, fake_node: FakeNode
) -> None:
    from datetime import timedelta

    from orion.operator.certificates.issuing import new_self_signed, utc_now

    node = fake_node("a")
    other = new_self_signed("localhost", utc_now(), timedelta(days=1), timedelta(0)).pem.decode()
    assert refusal(operator.node_pods_port, {"x": other}, token(api, world.namespace, node))[0] == "UNAVAILABLE"
    both = {"x": other, **certificates(api, world.namespace)}
    assert refusal(operator.node_pods_port, both, token(api, world.namespace, node)) == ("", "")


def test_the_newest_calls_of_a_node_stay(world: World, fake_node: FakeNode, listen: Callable[[str], Caller]) -> None:
    node, other = fake_node("a"), listen(fake_node("b"))
    first = listen(node)
    eventually(lambda: first.pods is not None and other.pods is not None)
    calls = [listen(node) for _ in range(2)]
    eventually(lambda: "RESOURCE_EXHAUSTED" in first.ends)
    assert other.ends == []
    assert all(set(each.ends) <= {"RESOURCE_EXHAUSTED"} for each in calls)


def test_the_certificate_is_published_and_renewed_and_withdrawn(
    api: client.ApiClient, world: World, operator: OperatorProcess
) -> None:
    core, (name, pem) = client.CoreV1Api(api), certificates(api, world.namespace).popitem()
    assert "PRIVATE" not in pem
    operator.end()
    assert certificates(api, world.namespace) == {}
    core.patch_namespaced_config_map(
        node_pods_caller.CONFIG_MAP, world.namespace, {"data": {"killed-long-ago": "no certificate"}}
    )
    operator.start().wait_until_ready()
    assert certificates(api, world.namespace).keys() == {name}
    assert certificates(api, world.namespace)[name] != pem
