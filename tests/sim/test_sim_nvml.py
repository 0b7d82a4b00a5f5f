"""The simulated GPU's NVML, through NVIDIA's own bindings: what monitors see of GPUs, their memory and processes."""

import json
import subprocess
import sys
from pathlib import Path

LISTING = """
import json, pynvml as nvml
nvml.nvmlInit()
rows = []
for index in range(nvml.nvmlDeviceGetCount()):
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    uuid, bus = nvml.nvmlDeviceGetUUID(handle), nvml.nvmlDeviceGetPciInfo(handle).busId
    again = [nvml.nvmlDeviceGetHandleByUUID(uuid), nvml.nvmlDeviceGetHandleByPciBusId(bus)]
    assert [nvml.nvmlDeviceGetIndex(each) for each in again] == [index, index]
    rows.append([nvml.nvmlDeviceGetName(handle), uuid, bus])
print(json.dumps([nvml.nvmlSystemGetDriverVersion(), nvml.nvmlSystemGetCudaDriverVersion(), rows]))
nvml.nvmlShutdown()
"""
WATCHING = """
import json, os, pynvml as nvml
from cuda.bindings import driver as cuda
nvml.nvmlInit()
handle = nvml.nvmlDeviceGetHandleByIndex(0)
def look():
    plain, second = nvml.nvmlDeviceGetMemoryInfo(handle), nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2)
    assert (plain.total, plain.used, plain.free) == (second.total, second.used + second.reserved, second.free)
    lists = (nvml.nvmlDeviceGetComputeRunningProcesses_v2(handle), nvml.nvmlDeviceGetComputeRunningProcesses(handle))
    mine = [[each.usedGpuMemory for each in listed if each.pid == os.getpid()] for listed in lists]
    assert mine[0] == mine[1] and nvml.nvmlDeviceGetGraphicsRunningProcesses(handle) == []
    return [plain.total, plain.used, mine[0]]
looks = [look()]
assert cuda.cuInit(0)[0] == 0
cuda.cuCtxSetCurrent(cuda.cuDevicePrimaryCtxRetain(0)[1])
looks.append(look())
cuda.cuMemAlloc(100 << 20)
looks.append(look())
print(json.dumps(looks))
"""
ERRORS = """
import json, sys, pynvml as nvml
from pathlib import Path
from orion.hook.simulated import Machine
def error(call):
    try:
        call()
    except nvml.NVMLError as error:
        return [error.value, str(error)]
try:
    nvml.nvmlInit()
except nvml.NVMLError as failure:
    print(json.dumps([[failure.value, str(failure)]]))
    sys.exit()
handle = nvml.nvmlDeviceGetHandleByIndex(0)
found = [error(lambda: nvml.nvmlDeviceGetHandleByIndex(9)), error(lambda: nvml.nvmlDeviceGetHandleByUUID("GPU-1"))]
found += [error(lambda: nvml.nvmlDeviceGetTemperature(handle, 0))]
Machine(Path(sys.argv[1])).lose(0)
found += [error(lambda: nvml.nvmlDeviceGetMemoryInfo(handle))]
nvml.nvmlShutdown()
found += [error(nvml.nvmlDeviceGetCount)]
print(json.dumps(found))
"""
SOURCE = """
from orion.node_agent.gpus import factory
print(factory.choose("auto", None).name)
"""


def run(source: str, environment: dict[str, str], *arguments: str) -> str:
    command = [sys.executable, "-c", source, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_gpus_and_their_identities(machine: dict[str, str]) -> None:
    driver, cuda, rows = json.loads(run(LISTING, machine | {"ORION_SIM_GPUS": "2"}))
    assert (driver.split(".")[0], cuda) == ("580", 13000)
    assert [name for name, _, _ in rows] == ["Orion Simulated GPU"] * 2
    assert len({uuid for _, uuid, _ in rows}) == 2
    assert [bus for _, _, bus in rows] == ["00000000:01:00.0", "00000000:02:00.0"]


def test_a_container_sees_its_gpus_only_whatever_cuda_sees(machine: dict[str, str]) -> None:
    environment = machine | {"ORION_SIM_GPUS": "3"}
    uuids = [uuid for _, uuid, _ in json.loads(run(LISTING, environment))[2]]
    environment |= {"ORION_SIM_VISIBLE_GPUS": f"{uuids[2]},{uuids[1]}", "CUDA_VISIBLE_DEVICES": "0"}
    assert [uuid for _, uuid, _ in json.loads(run(LISTING, environment))[2]] == uuids[1:]


def test_memory_and_processes(machine: dict[str, str]) -> None:
    before, context, allocated = json.loads(run(WATCHING, machine))
    assert before == [80 << 30, 0, []]
    assert context[1:] == [context[1], [context[1]]]
    assert allocated[1:] == [context[1] + (100 << 20), [context[1] + (100 << 20)]]


def test_errors(machine: dict[str, str], c_build: Path) -> None:
    library = str(c_build / "sim" / "libcuda.so.1")
    index, uuid, missing, lost, closed = json.loads(run(ERRORS, machine, library))
    assert index == [2, "Invalid Argument"]
    assert uuid == [6, "Not Found"]
    assert missing[0] == 13
    assert lost == [15, "GPU is lost"]
    assert closed[0] == 1
    elsewhere = {"ORION_SIM_STATE": f"{machine['ORION_SIM_STATE']}-none", "ORION_SIM_MAKE": "0"}
    assert json.loads(run(ERRORS, machine | elsewhere, library))[0][0] == 9


def test_a_process_that_uses_nvml_only_does_not_load_the_driver(machine: dict[str, str]) -> None:
    source = f"{LISTING}\nassert 'libcuda' not in open('/proc/self/maps').read()"
    run(source, machine)


def test_an_agent_takes_no_gpus_from_it(machine: dict[str, str]) -> None:
    assert run(SOURCE, machine | {"ORION_SIM_GPUS": "1"}).strip() == "simulated"
