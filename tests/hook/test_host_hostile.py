"""A hostile client beside an honest pair: its attacks fail, and the pair does not notice them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from orion.hook import layout
from tests.hook import hostile_client
from tests.hook.harness import Machine, figure, percentile
from tests.hook.scripted_client import MILLISECOND, Client, busy, eventually, warm
from tests.node_agent.protocol_client import ProtocolClient

pytestmark = pytest.mark.quiet

ROUNDS, ROUNDS_AT_MOST = 3, 9


def beside(machine: Machine, hp: Client, be: Client, slot: str) -> tuple[float, float, str]:
    """Serve requests for two seconds beside another process; return hp's p90 in ms, be's kernels, its output."""
    directory = str(machine.root / "gpus" / machine.uuids[0] / slot) if slot else "-"
    # Both kinds of other process yield the CPU, because the test is not about CPU time.
    command = ["nice", "-n", "10", sys.executable, hostile_client.__file__, directory, "2.0"]
    environment = machine.environment | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    other = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    be.send("loop 1.8 500 4")
    latencies = hp.do("serve 140 1500 12000 1").more
    kernels = be.answer().result
    output, _ = other.communicate(timeout=30)
    assert other.returncode == 0
    return percentile(latencies, 90) / 1e6, kernels, output


def test_the_attacks_succeed_on_open_pages_and_fail_on_the_agents(machine: Machine) -> None:
    fd = os.memfd_create("open", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, 4096)
    assert len(hostile_client.reached(fd, "a page", own=False)) == 8
    os.close(fd)
    hp = machine.start("hp-0")
    directory = machine.root / "gpus" / machine.uuids[0] / "be-1"
    with ProtocolClient(directory).join() as client:
        client.receive_until({(shown.place, shown.generation) for shown in [machine.shown(hp)] if shown})
    assert hostile_client.attack_pages(directory) == []


def test_neighbours_of_a_hostile_client_are_not_slowed(machine: Machine) -> None:
    hp, be = machine.start("hp-0"), machine.start("be-0")
    warm(be, 500)
    latency: dict[str, list[float]] = {"": [], "be-1": []}
    kernels: dict[str, list[float]] = {"": [], "be-1": []}

    # The documented limit is 10 %. Half a millisecond and another 10 % allow for this machine's own noise. Other load
    # disturbs single rounds, a hostile neighbour disturbs all: so the test compares the best rounds, and repeats if
    # needed.
    def is_kept() -> bool:
        is_late = min(latency["be-1"]) > 1.1 * min(latency[""]) + 0.5
        return not is_late and max(kernels["be-1"]) >= 0.8 * max(kernels[""])

    while len(kernels["be-1"]) < ROUNDS or (len(kernels["be-1"]) < ROUNDS_AT_MOST and not is_kept()):
        for slot in ("", "be-1"):
            p90, done, output = beside(machine, hp, be, slot)
            latency[slot].append(p90)
            kernels[slot].append(done)
            assert output.strip() == "", f"reached: {output}"
    for slot, name in (("", "one that burns CPU"), ("be-1", "a hostile neighbour")):
        figure(f"hp p90 of 1.5 ms requests beside {name}", latency[slot], "ms")
        figure(f"be iterations beside {name}", kernels[slot], "")
    assert is_kept()
    assert hp.said == be.said == []
    with busy(hp, 30) as launched:
        be.send("run 1 10")
    assert be.answer().ended >= launched.began + 30 * MILLISECOND


def test_ten_thousand_joins_disturb_no_client(machine: Machine) -> None:
    hp, be = machine.start("hp-0"), machine.start("be-0")
    indices = [(shown.place, shown.generation) for client in (hp, be) if (shown := machine.shown(client))]
    directory = machine.root / "gpus" / machine.uuids[0] / "be-1"
    before = len(os.listdir(f"/proc/{machine.agent_pid}/fd"))
    hostile_client.attack_joins(directory, 500)
    for _ in range(10):
        hostile_client.shout_hello(directory, 950)
        with busy(hp, 10) as launched:
            be.send("run 1 10")
        assert be.answer().ended >= launched.began + 10 * MILLISECOND
    indices_now = [(shown.place, shown.generation) for client in (hp, be) if (shown := machine.shown(client))]
    assert indices_now == indices
    new = machine.start("be-2")
    new.must("run 1 10")
    assert new.said == []
    eventually(lambda: sum(len(slot.clients) for slot in machine.gpu().slots) == 3, "the agent has removed the clients")
    eventually(lambda: len(os.listdir(f"/proc/{machine.agent_pid}/fd")) <= before + 8, "their descriptors are closed")


def test_a_hostile_hp_page_holds_be_no_longer_than_the_stall_time(machine: Machine) -> None:
    # A hostile hp client has the right to say that it is busy. It must not delay be for ever by an invalid state.
    be = machine.start("be-0")
    directory = Path(machine.root / "gpus" / machine.uuids[0] / "hp-0")
    with ProtocolClient(directory).join() as hostile:
        hostile.busy.set(layout.BusyPage, "state", layout.BusyState.BUSY)
        eventually(lambda: be.must("run 1 10").seconds > 0.5, "be knows the client, and waited for it")
        for state in (1, 2, 3, 4, 2**32 - 1):
            hostile.busy.set(layout.BusyPage, "state", state)
            hostile.busy.set(layout.BusyPage, "heartbeat_ns", 2**64 - 1)
            hostile.busy.set(layout.BusyPage, "drained_ns", 2**64 - 1)
            assert be.must("run 1 10").seconds < 1.6
        assert len(be.said) == 1
