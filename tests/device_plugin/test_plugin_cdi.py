"""CDI: a container runtime that supports CDI gives the container exactly the GPUs that the plugin names."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from orion import hook
from orion.device_plugin.kubelet import api_pb2
from orion.hook import simulated
from tests.device_plugin import cdi_runtime
from tests.device_plugin.conftest import Node
from tests.device_plugin.real_node import HOOK, Container
from tests.device_plugin.scripted_agent import devices

_LIST = """
import ctypes, sys
driver = ctypes.CDLL(sys.argv[1])
for gpu in range(driver.orion_sim_gpu_count()):
    text = ctypes.create_string_buffer(48)
    driver.orion_sim_gpu_uuid(gpu, text)
    print(text.value.decode())
"""


def make_machine(state: Path, gpus: int) -> list[str]:
    """Make the simulated machine for the node's CDI specification; return the GPUs' UUIDs."""
    environment = {**os.environ, "ORION_SIM_STATE": str(state), "ORION_SIM_GPUS": str(gpus)}
    command = [sys.executable, "-c", _LIST, str(hook.simulated_driver())]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()


def write_specification(folder: Path, state: Path, gpus: list[str]) -> None:
    """Write a specification as NVIDIA's toolkit does, for simulated GPUs."""
    needs = simulated.container_needs(library=hook.simulated_driver(), state=state, gpus=gpus)
    folder.mkdir()
    mounts = [
        {
            "hostPath": str(each.host_path),
            "containerPath": each.container_path,
            "options": ["bind", *(["ro"] if each.read_only else [])],
        }
        for each in needs.mounts
    ]
    plain = {name: value for name, value in needs.environment.items() if name != "ORION_SIM_VISIBLE_GPUS"}
    specification = {
        "cdiVersion": "0.6.0",
        "kind": "nvidia.com/gpu",
        "containerEdits": {"mounts": mounts, "env": [f"{name}={value}" for name, value in plain.items()]},
        "devices": [{"name": gpu, "containerEdits": {"env": [f"ORION_SIM_VISIBLE_GPUS={gpu}"]}} for gpu in gpus],
    }
    (folder / "nvidia.json").write_text(json.dumps(specification))


@pytest.mark.parametrize("strategy", ["cdi-annotations", "cdi-cri"])
def test_a_container_sees_the_gpu_of_its_slot(bare_node: Node, strategy: str) -> None:
    node = bare_node
    gpus = make_machine(node.folder / "sim", 2)
    write_specification(node.folder / "cdi", node.folder / "sim", gpus)
    configuration = node.folder / "node.yaml"
    configuration.write_text(yaml.safe_dump({"version": "v1", "deviceListStrategy": strategy}))
    node.options = ["--configuration", str(configuration)]
    node.agent.snapshot = devices(2, simulated=False)  # treated as real GPUs, so the plugin adds no driver
    for device, uuid in zip(node.agent.snapshot.devices, gpus, strict=True):
        device.uuid = uuid
    node.agent.start()
    node.kubelet.start()
    node.plugin()
    node.until_allocatable(6, hp=2)
    for pod in ("one", "two"):
        given = node.kubelet.admit(pod, "main", be=1)
        answer = node.kubelet.start_container(pod, "main")
        assert not [mount for mount in answer.mounts if "libcuda" in mount.container_path]
        edited = cdi_runtime.apply(answer, node.folder / "cdi")
        container = Container(edited, node.folder / f"{pod}.log", {"LD_PRELOAD": HOOK})
        try:
            assert container.do("begin") == {"gpus": [given[0].partition("::")[0]]}
            container.do("work 2")
        finally:
            container.end()


def test_a_gpu_that_no_specification_has_is_an_error_of_the_runtime(tmp_path: Path) -> None:
    answer = api_pb2.ContainerAllocateResponse(cdi_devices=[{"name": "nvidia.com/gpu=GPU-nobody"}])
    with pytest.raises(cdi_runtime.Unresolvable):
        cdi_runtime.apply(answer, tmp_path)
