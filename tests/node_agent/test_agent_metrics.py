"""The agent's metrics: their values, that `docs/metrics.md` names all of them, and that no page content breaks them."""

import os
import re
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from orion.hook import layout
from orion.node_agent.api.client import AgentClient
from tests.node_agent.conftest import GPU, AgentProcess, eventually
from tests.node_agent.protocol_client import ProtocolClient, Refused

DOCUMENT = Path(__file__).parents[2] / "docs" / "metrics.md"


@pytest.fixture
def address(stopped_agent: AgentProcess) -> str:
    stopped_agent.start("--metrics-address", "127.0.0.1:0")
    return f"127.0.0.1:{stopped_agent.metrics_port}"


Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def scrape(address: str) -> Samples:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    samples: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in samples, "a series appears twice"
            samples[key] = sample.value
    return samples


def value(samples: Samples, name: str, **labels: str) -> float:
    (found,) = [
        number for (sample, its), number in samples.items() if sample == name and frozenset(labels.items()) <= its
    ]
    return found


def test_metrics_show_a_client(stopped_agent: AgentProcess, address: str) -> None:
    with ProtocolClient(stopped_agent.slot("be-0")).join() as client:
        client.receive_message()
        client.record.set(layout.RecordPage, "launches", 7)
        client.record.set(layout.RecordPage, "gated_ns", 1_500_000_000)
        at = layout.offset(layout.RecordPage, "wait_bucket") + 8 * 3
        client.record.memory[at : at + 8] = (4).to_bytes(8, "little")
        samples = scrape(address)
        labels = {"gpu": GPU, "slot": "be-0", "role": "be", "process_id": str(os.getpid()), "command": "test"}
        assert value(samples, "orion_client_launches_total", **labels) == 7
        assert value(samples, "orion_client_gated_seconds_total", **labels) == 1.5
        assert value(samples, "orion_client_gate_wait_seconds_bucket", le="4e-06", **labels) == 0
        assert value(samples, "orion_client_gate_wait_seconds_bucket", le="8e-06", **labels) == 4
        assert value(samples, "orion_client_gate_wait_seconds_count", **labels) == 4
        assert value(samples, "orion_gpu_clients", role="be") == 1
        assert value(samples, "orion_agent_joins_total", role="be") == 1
        assert value(samples, "orion_gpu_window_seconds") == 0.0004


def test_counters_of_a_process_do_not_fall_when_one_of_its_clients_leaves(
    stopped_agent: AgentProcess, address: str
) -> None:
    """Prometheus takes a counter that falls for one that began again, and adds what is left of it once more."""

    def shown() -> tuple[float, float, float]:
        samples = scrape(address)
        names = ("orion_client_launches_total", "orion_client_gate_wait_seconds_count", "orion_gpu_clients")
        launches, waits, clients = (value(samples, name, gpu=GPU, role="be") for name in names)
        return launches, waits, clients

    def count(client: ProtocolClient, number: int) -> None:
        client.record.set(layout.RecordPage, "launches", number)
        at = layout.offset(layout.RecordPage, "wait_bucket")
        client.record.memory[at : at + 8] = number.to_bytes(8, "little")

    with ProtocolClient(stopped_agent.slot("be-0")).join() as stays:
        stays.receive_message()
        count(stays, 7)
        with ProtocolClient(stopped_agent.slot("be-0")).join() as leaves:
            leaves.receive_message()
            count(leaves, 100)
            assert shown() == (107, 107, 2)
        eventually(lambda: shown()[2] == 1, "one client has left")
        assert shown() == (107, 107, 1)
        count(stays, 10)
        assert shown() == (110, 110, 1)
        count(stays, 3)  # the hook takes back what a launch has counted
        assert shown() == (110, 110, 1)
    eventually(lambda: value(scrape(address), "orion_gpu_clients", gpu=GPU, role="be") == 0, "both have left")
    with ProtocolClient(stopped_agent.slot("be-0")).join() as later:
        later.receive_message()
        count(later, 1)
        assert shown() == (1, 1, 1)


def test_a_process_that_only_asks_for_the_agent_counts_as_no_refusal(stopped_agent: AgentProcess, address: str) -> None:
    for newest in (0, 1):
        with pytest.raises(Refused):
            ProtocolClient(stopped_agent.slot("be-0")).join(oldest=newest, newest=newest)
    assert value(scrape(address), "orion_agent_refusals_total", reason="layout") == 1


def test_every_metric_is_documented(stopped_agent: AgentProcess, address: str) -> None:
    with (
        ProtocolClient(stopped_agent.slot("be-0")).join() as client,
        ProtocolClient(stopped_agent.slot("hp-0")).join() as hp,
    ):
        client.receive_until({hp.key})
        client.record.set(layout.RecordPage, "long_kernel_ns", 50_000_000)
        hp.record.set(layout.RecordPage, "slowdown_milli", 1_050)
        shown = {re.sub(r"_(bucket|sum|count|created)$", "", name) for name, _ in scrape(address)}
    agent_part, _, _ = DOCUMENT.read_text().partition("\n## In a cluster\n")
    documented = set(re.findall(r"^\| `(orion_\w+)`", agent_part, re.MULTILINE))
    assert shown <= documented
    assert documented - shown <= {"orion_agent_refusals_total"}


def test_no_page_content_breaks_a_scrape_or_a_snapshot(stopped_agent: AgentProcess, address: str) -> None:
    with (
        ProtocolClient(stopped_agent.slot("be-0")).join(command=b'"\n\\\xff{}\0x') as be,  # type: ignore[arg-type]
        ProtocolClient(stopped_agent.slot("be-0")).join(command=b'"\n\\\xff{}\0x') as twin,  # type: ignore[arg-type]
        ProtocolClient(stopped_agent.slot("hp-0")).join() as hp,
        AgentClient(stopped_agent.root) as administrator,
    ):
        be.receive_until({hp.key})
        twin.receive_until({hp.key})
        for fill in (b"\x80", b"\x01", b"\x7f", b"\xff"):
            for page in (be.record, hp.record, twin.record):
                page.memory[:] = fill * 4096
            be.busy.memory[:] = fill * 4096
            hp.busy.memory[64:68] = fill * 4
            assert scrape(address)
            assert len(administrator.snapshot().gpus) == 1
        eventually(
            lambda: value(scrape(address), "orion_gpu_clients", role="be") <= 1, "the robust futex shows the death"
        )


def test_metrics_show_overlap(stopped_agent: AgentProcess, address: str) -> None:
    with (
        ProtocolClient(stopped_agent.slot("be-0")).join() as be,
        ProtocolClient(stopped_agent.slot("hp-0")).join() as hp,
        AgentClient(stopped_agent.root) as administrator,
    ):
        be.receive_until({hp.key})
        administrator.set_policy(GPU, max_slowdown=1.25, request=0.9)
        administrator.set_grant(GPU, "be-0", request=0.4)
        for name, number in (("gpu_ns", 2_500_000_000), ("overlapped_launches", 3), ("partitioned_launches", 2)):
            be.record.set(layout.RecordPage, name, number)
        be.record.set(layout.RecordPage, "long_kernel_ns", 50_000_000)
        at = layout.offset(layout.RecordPage, "long_kernel_name")
        be.record.memory[at : at + 128] = b'gemm"\n<\xff>{}'.ljust(128, b"\0")
        hp.record.set(layout.RecordPage, "slowdown_milli", 1_050)
        hp.record.set(layout.RecordPage, "control_periods", 4)
        samples = scrape(address)
        assert value(samples, "orion_client_gpu_seconds_total", slot="be-0") == 2.5
        assert value(samples, "orion_client_overlapped_launches_total", slot="be-0") == 3
        assert value(samples, "orion_client_partitioned_launches_total", slot="be-0") == 2
        assert value(samples, "orion_be_long_kernel_seconds", kernel='gemm"?<?>{}') == 0.05
        assert value(samples, "orion_client_slowdown_ratio", slot="hp-0") == 1.05
        assert value(samples, "orion_client_control_periods_total", slot="hp-0") == 4
        assert value(samples, "orion_gpu_max_slowdown_ratio") == 1.25
        assert value(samples, "orion_gpu_request_ratio") == 0.9
        assert value(samples, "orion_slot_request_ratio", slot="be-0") == 0.4
        assert value(samples, "orion_slot_limit_ratio", slot="be-0") == 0
        assert value(samples, "orion_condition", reason="LongKernels") == 1
