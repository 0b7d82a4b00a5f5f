"""Fixtures: a separate machine for each test, with simulated GPUs and an agent (see harness.py)."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from orion.hook import layout
from orion.node_agent.api import agent_pb2
from tests.hook.harness import Machine
from tests.hook.job_of_ranks import Job
from tests.hook.limited_slot import LimitedTenants
from tests.hook.look_ups import Programs, compile_hooks, compile_programs
from tests.hook.monitor import LIMIT, Monitor, Start
from tests.hook.scripted_client import Client


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    """Look-ups, and the hook at each level: 30 s of CPU to compile both, so the workers of pytest-xdist share them."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:  # each worker has its folder in one that all share
        shared = shared.parent
    return compile_programs(tmp_path_factory.mktemp("interposition"), compile_hooks(shared))


@pytest.fixture
def bare_machine(c_build: Path) -> Iterator[Machine]:
    """A machine without an agent."""
    with Machine(c_build) as machine:
        yield machine


@pytest.fixture
def machine(bare_machine: Machine) -> Machine:
    bare_machine.start_agent()
    return bare_machine


@pytest.fixture
def tenants(machine: Machine) -> LimitedTenants:
    return LimitedTenants(machine)


@pytest.fixture
def pair(machine: Machine) -> tuple[Client, Client]:
    """An hp and a be client, both managed."""
    return machine.start("hp-0"), machine.start("be-0")


@pytest.fixture
def start(bare_machine: Machine) -> Iterator[Start]:
    """Starts monitors in a slot of the machine; without a slot they run without the hook."""
    monitors: list[Monitor] = []

    def begin(slot: str = "", *prefix: str) -> Monitor:
        root = bare_machine.client_root(slot) if slot else None
        complaints = bare_machine.folder / f"monitor-{bare_machine.next_number()}"
        monitors.append(Monitor(list(prefix), bare_machine.client_environment(root), complaints))
        return monitors[-1]

    yield begin
    for monitor in monitors:
        monitor.close()


@pytest.fixture
def limited(machine: Machine) -> Machine:
    for slot in ("be-0", "hp-0"):
        machine.agent.set_grant(machine.uuids[0], slot, memory_limit_bytes=LIMIT)
    return machine


@pytest.fixture
def machine_of_ranks(c_build: Path, request: pytest.FixtureRequest) -> Iterator[Machine]:
    """A machine with two GPUs, or as many as the test says, and a be slot on each for one job."""
    with Machine(c_build, gpus=getattr(request, "param", 2)) as machine:
        (machine.folder / "ranks").write_bytes(bytes(layout.PAGE_SIZE))
        machine.start_agent()
        for uuid in machine.uuids:
            machine.agent.open_slot(uuid, agent_pb2.BE, name="be-0", owner_process_id=os.getpid())
        yield machine


@pytest.fixture
def job(machine_of_ranks: Machine) -> Job:
    machine, hps = machine_of_ranks, []
    for gpu in range(len(machine.uuids)):
        hp = machine.start_in(machine.client_root(*["hp-0"] * len(machine.uuids)))
        hp.must(f"init {gpu}")
        machine.until_joined(hp, gpu=gpu)
        hps.append(hp)
    job = Job(machine, hps)
    job.ranks = [job.start(gpu) for gpu in range(2)]
    return job
