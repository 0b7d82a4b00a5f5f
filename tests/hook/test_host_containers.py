"""Clients in containers: pid namespaces, users, read-only roots; one simulated machine and one agent for all."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orion.hook import simulated
from tests.hook.containers import ContainedClient, require_root, start_contained
from tests.hook.harness import Machine
from tests.hook.scripted_client import MILLISECOND, busy, eventually

pytestmark = pytest.mark.quiet

NO_DEVICE = 100
UNKNOWN_ERROR = 999
DEVICE_UNAVAILABLE = 46

PROCESSES = """
import json, sys
from pathlib import Path
from orion.node_agent.gpus.simulated import SimulatedGpus
gpus = SimulatedGpus(Path(sys.argv[1]))
print(json.dumps([sorted(gpus.process_ids(gpu)) for gpu in gpus.find()]))
"""
ELSEWHERE = ("unshare", "--mount", "--pid", "--fork", "--mount-proc")


def processes(machine: Machine, *prefix: str) -> list[list[int]]:
    """What an agent would find on each GPU; with a prefix, an agent in another pid namespace."""
    command = [*prefix, sys.executable, "-c", PROCESSES, str(machine.simulated_library)]
    done = subprocess.run(command, env=machine.environment, capture_output=True, text=True, check=True)
    answer: list[list[int]] = json.loads(done.stdout)
    return answer


def set_health(machine: Machine, *words: str) -> str:
    command = [sys.executable, "-m", "orion.hook.simulated", "--library", str(machine.simulated_library), *words]
    return subprocess.run(command, env=machine.environment, capture_output=True, text=True, check=True).stdout


def status(client: ContainedClient) -> dict[str, str]:
    lines = Path(f"/proc/{client.pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def used(machine: Machine) -> int:
    return machine.gpu().memory_used_bytes


@pytest.fixture
def two_gpus(c_build: Path) -> Iterator[Machine]:
    with Machine(c_build, gpus=2) as machine:
        machine.start_agent()
        yield machine


def test_any_user_of_any_namespace_joins_and_waits_for_hp(machine: Machine) -> None:
    hp, be = start_contained(machine, "hp-0", user=12345), start_contained(machine, "be-0", user=54321)
    assert (hp.said, be.said) == ([], [])
    shown = status(be)
    assert shown["Uid"].split() == ["54321"] * 4
    assert (int(shown["CapBnd"], 16), int(shown["CapEff"], 16), shown["NoNewPrivs"]) == (0, 0, "1")
    assert shown["NSpid"].split() == [str(be.pid), "1"]
    machine.until_known(hp, be)
    with busy(hp, 20) as launched:
        assert be.must("run 1 10").ended >= launched.began + 20 * MILLISECOND
    assert be.must("run 1 10").seconds < 0.5


def test_a_client_on_the_host_and_one_in_a_container_share_the_gpu(machine: Machine) -> None:
    hp, be = start_contained(machine, "hp-0", user=0), machine.start("be-0")
    machine.until_known(hp, be)
    with busy(hp, 20) as launched:
        assert be.must("run 1 10").ended >= launched.began + 20 * MILLISECOND


def test_the_gpus_processes_have_the_agents_process_ids(machine: Machine) -> None:
    clients = [start_contained(machine, "hp-0"), start_contained(machine, "be-0"), machine.start("be-1")]
    assert processes(machine) == [sorted(client.pid for client in clients)]
    shown = {shown.process_id for slot in machine.gpu().slots for shown in slot.clients}
    assert shown == {client.pid for client in clients}


def test_an_invisible_process_gets_no_wrong_process_id(machine: Machine) -> None:
    start_contained(machine, "hp-0")
    machine.start("be-0")
    require_root()
    assert processes(machine, *ELSEWHERE) == [[]]


def test_a_container_that_is_killed_leaves_nothing(machine: Machine) -> None:
    # In their own namespaces all of them are process 1, and their threads have the same ids.
    dead, alive = start_contained(machine, "be-0"), start_contained(machine, "be-1")
    dead.must("alloc 33554432")
    alive.must("alloc 4194304")
    dead.must("launch 1 60000000")
    dead.kill_inside()
    machine.until(dead, "")
    eventually(lambda: processes(machine) == [[alive.pid]], "only the living process is on the GPU")
    eventually(lambda: used(machine) == 4194304, "the dead process's memory is free")
    assert alive.must("run 1 100").seconds < 5
    again = start_contained(machine, "be-0")
    assert again.must("run 1 100").seconds < 5
    assert processes(machine) == [sorted([alive.pid, again.pid])]


def test_the_death_of_hp_in_a_container_frees_be(machine: Machine) -> None:
    hp, be = start_contained(machine, "hp-0"), start_contained(machine, "be-0")
    machine.until_known(hp, be)
    hp.must("launch 1 60000000")
    be.send("run 1 10")
    assert not be.heard_something(0.05)
    hp.kill_inside()
    assert be.answer().result == 0


def test_a_container_has_only_its_gpus(two_gpus: Machine) -> None:
    client = start_contained(two_gpus, "", "be-0")
    client.must("alloc 2097152")
    assert processes(two_gpus) == [[], [client.pid]]
    assert client.do("init 1").result == 101  # CUDA_ERROR_INVALID_DEVICE


def test_without_the_node_s_machine_there_is_no_gpu(bare_machine: Machine) -> None:
    (bare_machine.state / "machine").unlink()
    for slot in ("hp-0", "be-0"):
        (bare_machine.root / "gpus" / bare_machine.uuids[0] / slot).mkdir(parents=True)
    assert ContainedClient(bare_machine, "hp-0", user=0).do("init 0").result == NO_DEVICE
    assert list(bare_machine.state.iterdir()) == []
    bare_machine.start_agent()
    start_contained(bare_machine, "be-0").must("run 1 10")


def test_a_lost_gpu_is_lost_for_its_containers_alone(two_gpus: Machine) -> None:
    there, lost = start_contained(two_gpus, "be-0", ""), start_contained(two_gpus, "", "be-0")
    set_health(two_gpus, "lose", two_gpus.uuids[1])
    assert lost.do("run 1 10").result == UNKNOWN_ERROR
    assert there.must("run 1 10").result == 0
    assert ContainedClient(two_gpus, "", "be-1").do("init 0").result == DEVICE_UNAVAILABLE
    set_health(two_gpus, "restore", "1")
    assert lost.do("run 1 10").result == UNKNOWN_ERROR  # as with a real GPU: this context has failed for good
    start_contained(two_gpus, "", "be-2").must("run 1 10")


def test_a_container_needs_each_thing_once() -> None:
    needs = simulated.container_needs(Path("/host/libcuda.so.1"), Path("/host/state"), ["GPU-b", "GPU-a", "GPU-b"])
    assert [(str(mount.host_path), mount.container_path, mount.read_only) for mount in needs.mounts] == [
        ("/host/state", "/run/orion-sim", False),
        ("/host/libcuda.so.1", "/usr/lib/x86_64-linux-gnu/libcuda.so.1", True),
        ("/host/libcuda.so.1", "/usr/lib64/libcuda.so.1", True),
    ]
    assert needs.environment == {
        "ORION_SIM_STATE": "/run/orion-sim",
        "ORION_SIM_MAKE": "0",
        "ORION_SIM_VISIBLE_GPUS": "GPU-b,GPU-a",
    }
