"""The identities of a machine's GPUs, which of them a process sees, their health, and who may use the machine."""

import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

UUIDS = """
import ctypes
sim = ctypes.CDLL("libcuda.so.1")
text = ctypes.create_string_buffer(41)
for gpu in range(sim.orion_sim_gpu_count()):
    sim.orion_sim_gpu_uuid(gpu, text)
    print(text.value.decode())
"""
DEVICES = """
from cuda.bindings import driver as cuda
from tests.sim.cuda_client import ok
if cuda.cuInit(0)[0] == cuda.CUresult.CUDA_SUCCESS:
    for device in range(ok(cuda.cuDeviceGetCount())):
        ok(cuda.cuDevicePrimaryCtxRetain(device))
        uuid = ok(cuda.cuDeviceGetUuid(device)).bytes.hex()
        bus = ok(cuda.cuDeviceGetPCIBusId(13, device)).split(b"\\0")[0].decode()
        assert int(ok(cuda.cuDeviceGetByPCIBusId(bus.encode()))) == device
        print(uuid, bus)
"""
DESCRIBED = """
import dataclasses, json, os, sys
from pathlib import Path
from orion.node_agent.gpus.simulated import SimulatedGpus
from orion.hook.simulated import Machine
library = Path(sys.argv[1])
gpus = SimulatedGpus(library)
found = gpus.find()
index = {gpu.uuid: gpu.index for gpu in found}
rows = [(gpu.numa_node, [index[uuid] for uuid in gpu.linked], gpus.mig_enabled(gpu)) for gpu in found]
machine = Machine(library)
def health(gpu):
    said = gpus.health(found[gpu])
    return said.reason, said.healthy
story = [health(0)]
machine.xid(0, 79); story += [health(0), health(0), health(1)]
machine.xid(0, 31); story += [health(0)]
machine.lose(0); story += [health(0), health(0)]
machine.restore(0); story += [health(0)]
try:
    machine.lose(4)
except IndexError as error:
    story += [str(error)[:11]]
print(json.dumps([rows, story]))
"""


def run(source: str, environment: dict[str, str], *arguments: str, umask: int = 0o022) -> str:
    command = [sys.executable, "-c", source, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, umask=umask)
    assert done.returncode == 0, done.stderr
    return done.stdout


def uuids(environment: dict[str, str]) -> list[str]:
    return run(UUIDS, environment).split()


def test_the_seed_gives_the_uuids(machine: dict[str, str]) -> None:
    def of(seed: str) -> list[str]:
        state = f"{machine['ORION_SIM_STATE']}/{seed}-{time.monotonic_ns()}"
        return uuids({**machine, "ORION_SIM_GPUS": "8", "ORION_SIM_STATE": state, "ORION_SIM_SEED": seed})

    assert of("node-a") == of("node-a")
    assert len({*of("node-a"), *of("node-b"), *of("node-c")}) == 24


@pytest.mark.parametrize(
    ("given", "wanted", "seen"),
    [
        (None, None, [0, 1, 2, 3]),
        ([2, 1], None, [1, 2]),  # a container's list follows the machine's order
        ([2, 1], "1,0", [2, 1]),  # a program's list has its own order
        ([2, 1], "2", []),
        (None, "3,1", [3, 1]),
        (None, "0,9,1", [0]),  # up to the first invalid entry
        (None, "1,1", []),
        (None, "", []),
        (None, "nonsense", []),
        (None, "uuid 2", [2]),
        (None, "start of uuid 2", [2]),
        ([1], "uuid 2", []),
        ([], None, []),
    ],
)
def test_a_process_sees_the_gpus_that_it_was_given_and_selects(
    machine: dict[str, str], given: list[int] | None, wanted: str | None, seen: list[int]
) -> None:
    machine["ORION_SIM_GPUS"] = "4"
    known = uuids(machine)
    if given is not None:
        machine["ORION_SIM_VISIBLE_GPUS"] = ",".join(known[gpu] for gpu in given)
    if wanted is not None:
        machine["CUDA_VISIBLE_DEVICES"] = {"uuid 2": known[2], "start of uuid 2": known[2][:10]}.get(wanted, wanted)
    rows = [line.split() for line in run(DEVICES, machine).splitlines()]
    plain = [uuid.removeprefix("GPU-").replace("-", "") for uuid in known]
    assert rows == [[plain[gpu], f"0000:{gpu + 1:02X}:00.0"] for gpu in seen]


def test_gpus_have_the_machines_settings_and_the_injected_health(machine: dict[str, str], c_build: Path) -> None:
    machine |= {"ORION_SIM_GPUS": "4", "ORION_SIM_MIG": "1,3", "ORION_SIM_NUMA": "0,0,1", "ORION_SIM_NVLINK": "0-2"}
    rows, story = json.loads(run(DESCRIBED, machine, str(c_build / "sim" / "libcuda.so.1")))
    assert rows == [[0, [1, 2], False], [0, [0, 2], True], [1, [0, 1], False], [None, [], True]]
    healthy, lost = ["", True], ["GPULost", False]
    assert story == [healthy, ["Xid79", False], healthy, healthy, healthy, lost, lost, healthy, "the machine"]


def test_the_command_shows_and_changes_health(machine: dict[str, str], c_build: Path) -> None:
    machine["ORION_SIM_GPUS"] = "2"
    known = uuids(machine)

    def simulated_command(*words: str) -> subprocess.CompletedProcess[str]:
        library = str(c_build / "sim" / "libcuda.so.1")
        command = [sys.executable, "-m", "orion.hook.simulated", "--library", library, *words]
        return subprocess.run(command, env=machine, capture_output=True, text=True)

    assert simulated_command("xid", known[0], "48").returncode == simulated_command("lose", "1").returncode == 0
    assert simulated_command("show").stdout.splitlines() == [
        f"0  {known[0]}  present, 1 Xid events, the last 48",
        f"1  {known[1]}  lost, no Xid events",
    ]
    assert simulated_command("restore", known[1]).returncode == 0
    assert "lost" not in simulated_command("show").stdout
    refused = simulated_command("lose", "2")
    assert (refused.returncode, "has no GPU 2" in refused.stderr) == (2, True)


def test_a_machine_is_open_to_every_user_whatever_the_umask(machine: dict[str, str]) -> None:
    state = Path(machine["ORION_SIM_STATE"]) / "made"
    run(UUIDS, {**machine, "ORION_SIM_STATE": str(state)}, umask=0o077)
    assert stat.S_IMODE((state / "machine").stat().st_mode) == 0o666
    assert stat.S_IMODE(state.stat().st_mode) == (0o755 if os.geteuid() == 0 else 0o700)


def test_a_process_that_may_not_make_a_machine_changes_nothing(machine: dict[str, str]) -> None:
    state = Path(machine["ORION_SIM_STATE"])
    assert run(DEVICES, {**machine, "ORION_SIM_MAKE": "0"}) == ""
    assert list(state.iterdir()) == []
    (state / "machine").write_bytes(b"another layout" + bytes(8192))
    assert run(DEVICES, {**machine, "ORION_SIM_MAKE": "0"}) == ""
    assert (state / "machine").read_bytes().startswith(b"another layout")
    assert len(run(DEVICES, machine).splitlines()) == 1
    assert len(run(DEVICES, {**machine, "ORION_SIM_MAKE": "0"}).splitlines()) == 1
