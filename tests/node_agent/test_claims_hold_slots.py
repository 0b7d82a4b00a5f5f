"""A claim holds a slot: nobody else gets it, the next agent knows it, and it is free once its processes have ended."""

from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from orion.node_agent.api import agent_pb2
from orion.node_agent.api.client import AgentClient, RequestRefused
from tests.node_agent.agent_in_cluster import Node, grant
from tests.node_agent.conftest import GPU, AgentProcess, eventually
from tests.node_agent.protocol_client import ProtocolClient, current_grant

MIB = 1 << 20


@pytest.fixture
def served(stopped_agent: AgentProcess) -> AgentProcess:
    configuration = stopped_agent.root.with_name("node.yaml")
    configuration.write_text("version: v1\n")
    stopped_agent.start("--configuration", str(configuration))
    return stopped_agent


@pytest.fixture
def administrator(served: AgentProcess) -> Iterator[AgentClient]:
    with AgentClient(served.root) as client:
        yield client


def claim(uid: str = "one", share: str = "", pod: str = "a-pod", **amounts: Any) -> agent_pb2.ClaimOfSlot:
    pods = [agent_pb2.PodOfClaim(name=pod, uid=f"uid-{pod}")]
    return agent_pb2.ClaimOfSlot(uid=uid, share=share, namespace="n", name=f"claim-{uid}", pods=pods, **amounts)


def restart(served: AgentProcess) -> None:
    served.kill()
    served.start("--configuration", str(served.root.with_name("node.yaml")))


def slot(client: AgentClient, name: str) -> agent_pb2.Slot:
    return next(each for each in client.snapshot().gpus[0].slots if each.name == name)


def held(client: AgentClient) -> list[str]:
    return list(next(client.watch_devices()).devices[0].held)


def test_a_claim_gets_the_slot_with_its_amounts(administrator: AgentClient) -> None:
    given = administrator.hold_slot(GPU, "be-1", claim(memory_bytes=640 * MIB, time_milli=300))
    assert (given.name, given.memory_limit_bytes, given.request) == ("be-1", 640 * MIB, 0.3)
    assert slot(administrator, "be-1").claim == claim(memory_bytes=640 * MIB, time_milli=300)
    assert held(administrator) == ["be-1"]


def test_a_held_slot_is_refused_to_a_device_plugin(administrator: AgentClient) -> None:
    administrator.hold_slot(GPU, "be-1", claim("one"))
    with pytest.raises(RequestRefused, match="is held by a ResourceClaim"):
        administrator.prepare_slot(GPU, "be-1")
    assert slot(administrator, "be-1").claim == claim("one")


def test_a_held_slot_is_refused_to_another_claim(administrator: AgentClient) -> None:
    administrator.hold_slot(GPU, "be-1", claim("one"))
    with pytest.raises(RequestRefused, match="is held by claim n/claim-one") as refused:
        administrator.hold_slot(GPU, "be-1", claim("two"))
    assert refused.value.code is grpc.StatusCode.FAILED_PRECONDITION
    with pytest.raises(RequestRefused, match="is held by claim n/claim-one"):
        administrator.hold_slot(GPU, "be-1", claim("two"), had_it=True)


def test_a_claim_keeps_its_slot_whatever_slot_the_driver_names(administrator: AgentClient) -> None:
    administrator.hold_slot(GPU, "be-1", claim())
    assert administrator.hold_slot(GPU, "be-2", claim(pod="second")).name == "be-1"
    assert [pod.name for pod in slot(administrator, "be-1").claim.pods] == ["second"]
    assert administrator.hold_slot(GPU, "be-2", claim(share="another")).name == "be-2"


def test_processes_go_on_when_what_is_known_of_their_claim_changes(
    administrator: AgentClient, served: AgentProcess
) -> None:
    administrator.hold_slot(GPU, "be-1", claim())
    with ProtocolClient(served.slot("be-1")).join() as process:
        administrator.hold_slot(GPU, "be-1", claim(memory_bytes=640 * MIB))
        eventually(lambda: current_grant(process.grant).memory_limit_bytes == 640 * MIB)
        assert len(slot(administrator, "be-1").clients) == 1


def test_a_slot_is_free_when_its_processes_have_ended(administrator: AgentClient, served: AgentProcess) -> None:
    administrator.hold_slot(GPU, "be-1", claim("one", memory_bytes=640 * MIB))
    with ProtocolClient(served.slot("be-1")).join():
        administrator.release_slots("one")
        with pytest.raises(RequestRefused, match="is held by claim n/claim-one"):
            administrator.hold_slot(GPU, "be-1", claim("two"))
    eventually(lambda: held(administrator) == [])
    assert administrator.hold_slot(GPU, "be-1", claim("two")).memory_limit_bytes == 0


def test_a_claim_that_comes_back_before_its_processes_have_ended_keeps_its_slot(
    administrator: AgentClient, served: AgentProcess
) -> None:
    administrator.hold_slot(GPU, "be-1", claim())
    with ProtocolClient(served.slot("be-1")).join():
        administrator.release_slots("one")
        assert administrator.hold_slot(GPU, "be-4", claim()).name == "be-1"
    assert held(administrator) == ["be-1"]


def test_the_next_agent_knows_the_claim(administrator: AgentClient, served: AgentProcess) -> None:
    administrator.hold_slot(GPU, "be-1", claim(memory_bytes=640 * MIB))
    restart(served)
    with AgentClient(served.root) as after:
        assert slot(after, "be-1").claim == claim(memory_bytes=640 * MIB)
        assert slot(after, "be-1").memory_limit_bytes == 640 * MIB
        assert held(after) == ["be-1"]
        with pytest.raises(RequestRefused, match="is held by claim n/claim-one"):
            after.hold_slot(GPU, "be-1", claim("two"))


def test_the_next_agent_keeps_a_claims_limits_also_if_neither_kubelet_nor_operator_answers(stopped_node: Node) -> None:
    node = stopped_node
    node.start()
    with AgentClient(node.agent.root) as before:
        before.hold_slot(GPU, "be-1", claim(memory_bytes=640 * MIB, time_milli=300))
    with ProtocolClient(node.agent.slot("be-1")).join() as client:
        node.agent.kill()
        node.stop()
        node.start()
        client.return_to_agent()
        assert current_grant(client.grant).memory_limit_bytes == 640 * MIB
        assert (node.slot("be-1").memory_limit_bytes, node.slot("be-1").request) == (640 * MIB, 0.3)


def test_an_agent_that_has_lost_its_state_learns_the_claim_again(
    administrator: AgentClient, served: AgentProcess
) -> None:
    administrator.hold_slot(GPU, "be-1", claim())
    served.kill()
    (served.root / "state.json").unlink()
    served.start("--configuration", str(served.root.with_name("node.yaml")))
    with AgentClient(served.root) as after, ProtocolClient(served.slot("be-1")).join():
        with pytest.raises(RequestRefused, match="is held by processes of its previous holder"):
            after.hold_slot(GPU, "be-1", claim("two"))
        assert after.hold_slot(GPU, "be-1", claim(), had_it=True).name == "be-1"
        assert len(slot(after, "be-1").clients) == 1


def test_releasing_an_unknown_claim_does_nothing(administrator: AgentClient) -> None:
    administrator.release_slots("nobody")


def test_a_request_without_a_claim_is_refused(administrator: AgentClient) -> None:
    with pytest.raises(RequestRefused, match=r"claim\.uid: "):
        administrator.hold_slot(GPU, "be-1", agent_pb2.ClaimOfSlot())
    with pytest.raises(RequestRefused, match="has no slot 'be-99'"):
        administrator.hold_slot(GPU, "be-99", claim())


def test_in_a_cluster_the_pod_of_the_claim_is_the_holder(node: Node) -> None:
    node.pods.put("a-pod", grant(memoryLimitBytes=MIB, computeRequestMilli=100))
    asked = claim(memory_bytes=640 * MIB, time_milli=300)
    asked.namespace = "default"
    with AgentClient(node.agent.root) as administrator:
        administrator.hold_slot(GPU, "be-1", asked)
        # The share's limit applies, and the claim's request: the scheduler has accounted for it.
        eventually(lambda: slot(administrator, "be-1").memory_limit_bytes == MIB)
        assert slot(administrator, "be-1").request == 0.3
        device = next(administrator.watch_devices()).devices[0]
        assert (list(device.held), device.memory_reserved_bytes) == (["be-1"], 640 * MIB)
        administrator.release_slots("one")
        eventually(lambda: held(administrator) == [])
        eventually(lambda: slot(administrator, "be-1").memory_limit_bytes == 0)


def test_pods_that_come_later_to_a_claim_are_reported_to_the_driver_which_names_them(node: Node) -> None:
    node.pods.put("a-pod", grant(memoryLimitBytes=900 * MIB), created=1)
    node.pods.put("later", grant(memoryLimitBytes=700 * MIB), created=2)
    asked = claim(memory_bytes=640 * MIB)
    asked.namespace = "default"

    def others() -> dict[str, list[str]]:
        with AgentClient(node.agent.root) as administrator:
            return {each.claim_uid: list(each.pods) for each in next(administrator.watch_devices()).other_users}

    with AgentClient(node.agent.root) as administrator:
        administrator.hold_slot(GPU, "be-1", asked)
        node.kubelet.users = [("a-pod", "claim-one"), ("later", "claim-one"), ("other", "claim-two")]
        eventually(lambda: others() == {"one": ["a-pod", "later"]})
        asked.pods.add(name="later", uid="uid-later")
        administrator.hold_slot(GPU, "be-1", asked, had_it=True)
        assert others() == {}
        eventually(lambda: node.slot("be-1").memory_limit_bytes == 900 * MIB, "the first pod's grant applies to both")
        node.pods.put("a-pod", grant(memoryLimitBytes=900 * MIB), created=1, ended=True)
        eventually(lambda: node.slot("be-1").memory_limit_bytes == 700 * MIB, "the pod that is left decides")
        node.kubelet.users = [("later", "claim-one")]
        eventually(lambda: others() == {"one": ["later"]})


def test_whether_a_pod_may_start_without_the_hook_is_said_once_its_grant_is_known(node: Node) -> None:
    asked = claim()
    asked.namespace = "default"

    def said() -> tuple[list[str], list[str]]:
        with AgentClient(node.agent.root) as administrator:
            device = next(administrator.watch_devices()).devices[0]
            return list(device.fail_closed), list(device.fail_open)

    with AgentClient(node.agent.root) as administrator:
        administrator.hold_slot(GPU, "be-1", asked)
    assert said() == ([], [])
    node.pods.put("a-pod", grant(failClosed=True))
    eventually(lambda: said() == (["uid-a-pod"], []))
    node.pods.put("a-pod", grant(failClosed=False))
    eventually(lambda: said() == ([], ["uid-a-pod"]))


def test_a_share_that_asks_for_more_than_the_claim_reserves_is_reported_until_it_asks_for_less(node: Node) -> None:
    node.pods.put("a-pod", grant(memoryLimitBytes=900 * MIB, computeRequestMilli=400))
    asked = claim(memory_bytes=640 * MIB, time_milli=300)
    asked.namespace = "default"
    with AgentClient(node.agent.root) as administrator:
        administrator.hold_slot(GPU, "be-1", asked)
        (found,) = eventually(lambda: administrator.snapshot().gpus[0].conditions)
        assert found.reason == "ClaimReservesLess"
        assert "for memory 900Mi, where its claim reserves 640Mi and for time 0.4, where its claim reserves 0.3" in (
            found.message
        )
        node.pods.put("a-pod", grant(memoryLimitBytes=900 * MIB, memoryRequestBytes=640 * MIB, computeRequestMilli=300))
        eventually(lambda: not administrator.snapshot().gpus[0].conditions)
