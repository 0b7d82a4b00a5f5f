"""Conditions of a GPU and its clients: each is logged once, and a hostile page cannot break the text."""

import os
import time

from orion.hook import layout
from orion.node_agent.api import agent_pb2
from orion.node_agent.api.client import AgentClient
from orion.node_agent.sharing.conditions import of_gpu
from tests.node_agent.conftest import GPU, AgentProcess, eventually
from tests.node_agent.one_gpu import agent_of_one_gpu
from tests.node_agent.protocol_client import ProtocolClient


def gpu_conditions(administrator: AgentClient) -> dict[str, str]:
    return {each.reason: each.message for each in administrator.snapshot().gpus[0].conditions}


def client_of(administrator: AgentClient, slot: str) -> agent_pb2.Client:
    (client,) = next(each for each in administrator.snapshot().gpus[0].slots if each.name == slot).clients
    return client


def run_long_kernel(client: ProtocolClient, name: bytes, milliseconds: int) -> None:
    at = layout.offset(layout.RecordPage, "long_kernel_name")
    client.record.memory[at : at + 128] = name[:128].ljust(128, b"\0")
    client.record.set(layout.RecordPage, "long_kernel_ns", milliseconds * 1_000_000)


def test_a_long_kernel_is_named(agent: AgentProcess) -> None:
    with ProtocolClient(agent.slot("be-0")).join() as be, AgentClient(agent.root) as administrator:
        be.receive_message()
        assert client_of(administrator, "be-0").condition == ""
        run_long_kernel(be, b"spin_kernel(float*)", 50)
        shown = client_of(administrator, "be-0")
        assert shown.condition == "runs kernels of 50 ms (spin_kernel(float*)): hp may wait for one of them"
        assert (shown.long_kernel, shown.long_kernel_seconds) == ("spin_kernel(float*)", 0.05)
        (condition,) = shown.conditions
        assert condition.reason == "LongKernels"
        assert client_of(administrator, "be-0").conditions[0].since == condition.since > 1.7e9
        run_long_kernel(be, b"\x1b[2J\n\xff" * 22, 60)  # fills the field, without a terminating zero
        shown = client_of(administrator, "be-0")
        assert shown.condition.isprintable()
        assert len(shown.condition) < 200
        assert shown.conditions[0].since == condition.since
        run_long_kernel(be, b"", 0)
        assert client_of(administrator, "be-0").condition == ""


def test_a_condition_is_logged_once_and_at_a_limited_rate(agent: AgentProcess) -> None:
    with ProtocolClient(agent.slot("be-0")).join() as be, AgentClient(agent.root) as administrator:
        be.receive_message()
        for number in range(100):
            run_long_kernel(be, b"name", number % 2 * 50)
            administrator.snapshot()
    agent.terminate()
    log = agent.log()
    assert "be-0 process" in log
    assert "LongKernels: runs kernels of 50 ms (name)" in log
    assert log.count("LongKernels") <= 10


def test_a_slot_whose_processes_join_again_and_again_does_not_fill_the_log(agent: AgentProcess) -> None:
    with AgentClient(agent.root) as administrator:
        for _ in range(20):
            with ProtocolClient(agent.slot("be-0")).join() as be:
                be.receive_message()
                run_long_kernel(be, b"name", 50)
                assert client_of(administrator, "be-0").condition
    agent.terminate()
    assert 0 < agent.log().count("LongKernels") <= 10


def test_a_condition_says_that_overlap_has_no_effect_when_time_sliced(agent: AgentProcess) -> None:
    with (
        ProtocolClient(agent.slot("hp-0")).join() as hp,
        ProtocolClient(agent.slot("be-0")).join() as be,
        AgentClient(agent.root) as administrator,
    ):
        be.receive_until({hp.key})
        administrator.set_policy(GPU, max_slowdown=1.3)
        for client in (hp, be):
            client.record.set(layout.RecordPage, "launches", 1)

        def only(reason: str, words: str) -> None:
            eventually(lambda: words in gpu_conditions(administrator).get(reason, ""), reason)
            assert len(gpu_conditions(administrator)) == 1

        only("OverlapNeedsSharedContext", "overlap needs MPS, or threads of one process")
        be.record.set(layout.RecordPage, "shares_context", 1)
        mixed = "1 of 2 clients share a context"  # the message once the younger client also counts
        eventually(lambda: mixed in gpu_conditions(administrator).get("MixedContexts", ""), "MixedContexts")
        hp.record.set(layout.RecordPage, "shares_context", 1)
        only("SharingCostUnknown", "is not known; measure it")
        administrator.set_policy(GPU, sharing_cost=1.1)
        assert gpu_conditions(administrator) == {}
        for client in (hp, be):
            client.record.set(layout.RecordPage, "shares_context", 0)
        administrator.set_policy(GPU, max_slowdown=1.05)
        for client in (hp, be):
            client.record.set(layout.RecordPage, "shares_context", 1)
        only("BudgetBelowSharingCost", "ask for at least 1.1")


def test_lost_contexts_are_conditions_of_clients_and_of_the_gpu(agent: AgentProcess) -> None:
    with (
        ProtocolClient(agent.slot("hp-0")).join() as hp,
        ProtocolClient(agent.slot("be-0")).join() as be,
        AgentClient(agent.root) as administrator,
    ):
        be.receive_until({hp.key})
        for client in (hp, be):
            client.record.set(layout.RecordPage, "launches", 1)
            client.record.set(layout.RecordPage, "shares_context", 1)
        be.record.set(layout.RecordPage, "fault", 700)
        shown = client_of(administrator, "be-0").condition
        assert shown.startswith("lost its context: CUDA error 700 (illegal address)")
        hp.record.set(layout.RecordPage, "fault", 2**64 - 1)  # a value that a hostile client could write
        assert "CUDA error 4294967295;" in client_of(administrator, "hp-0").condition
        hp.record.set(layout.RecordPage, "fault", 806)
        eventually(lambda: "SharedFault" in gpu_conditions(administrator), "the shared fault is reported")
        sentence = gpu_conditions(administrator)["SharedFault"]
        assert sentence.startswith("2 of 2 clients that share a context (MPS) lost it: CUDA error 700 (illegal")
        assert "restart these clients, and the MPS daemon" in sentence


def test_a_condition_says_what_each_slot_gets_of_requests_that_are_scaled(agent: AgentProcess) -> None:
    with ProtocolClient(agent.slot("be-0")).join() as first, AgentClient(agent.root) as administrator:
        first.receive_message()

        def scaled() -> str:
            return gpu_conditions(administrator).get("RequestsScaled", "")

        administrator.set_grant(GPU, "be-0", request=0.8)
        administrator.set_grant(GPU, "be-1", request=0.2)
        administrator.set_grant(GPU, "be-2", request=0.9)  # nobody holds this slot
        with ProtocolClient(agent.slot("be-1")).join() as second, ProtocolClient(agent.slot("be-3")).join() as third:
            second.receive_message()
            third.receive_message()
            assert not scaled()
            began = time.monotonic()
            administrator.set_grant(GPU, "be-1", request=0.4)
            eventually(lambda: "add up to 1.2" in scaled(), "the condition begins")
            assert time.monotonic() - began >= 2.0  # a new program may follow one that ends
            assert (
                "be-0 asks for 0.8 and gets 0.661, be-1 asks for 0.4 and gets 0.331, "
                "be-3 asks for none and gets 0.008;" in scaled()
            )
            administrator.set_grant(GPU, "be-1", request=0.2)
            assert not scaled()
            administrator.set_grant(GPU, "be-1", request=0.4)
            eventually(lambda: bool(scaled()), "the condition begins again")
        eventually(lambda: not scaled(), "the condition ends with the program")


async def test_a_condition_names_a_limited_number_of_slots() -> None:
    with agent_of_one_gpu() as agent:
        for number in range(12):
            agent.slots.open(GPU, "", layout.Role.BE, 0, os.getpid(), request_milli=100 + number)
        sentence = of_gpu(agent.gpus[GPU].shared_gpu, 0)["RequestsScaled"]
        assert "be-19 asks for 0.111 and gets 0.088, be-18 asks for" in sentence
        assert "be-12 asks for 0.104 and gets 0.082, and 4 more;" in sentence
        assert len(sentence) < 600
