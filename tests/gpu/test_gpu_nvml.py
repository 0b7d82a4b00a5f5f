"""NVML's answers about a real GPU, queried as the agent does."""

import subprocess
import sys

import pytest

from orion.node_agent.gpus.interface import HEALTHY
from orion.node_agent.gpus.nvml import NvmlGpus

pytestmark = pytest.mark.gpu

HOLDS = "import torch; torch.ones(8, device='cuda'); torch.cuda.synchronize(); print('ready', flush=True); input()"
FAULTS = "import torch; torch.arange(8, device='cuda')[torch.tensor([1 << 20], device='cuda')].sum().item()"


def test_a_gpu_is_healthy_and_its_processes_are_listed() -> None:
    source = NvmlGpus()
    gpus = source.find()
    assert gpus
    assert [source.health(gpu) for gpu in gpus] == [HEALTHY] * len(gpus)
    assert all(gpu.memory_bytes > 0 and gpu.uuid.startswith("GPU-") for gpu in gpus)
    before = {each for gpu in gpus for each in source.process_ids(gpu)}
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        # NVML gives its process id in the driver's pid namespace, which differs from ours in a container.
        assert len({each for gpu in gpus for each in source.process_ids(gpu)} - before) == 1
        child.kill()
    source.close()
    assert source.health(gpus[0]).reason == "DriverAway"
    assert source.find() == gpus
    assert source.health(gpus[0]) == HEALTHY


def test_a_gpu_stays_healthy_after_a_programs_fault() -> None:
    source = NvmlGpus()
    gpus = source.find()
    failed = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, timeout=180)
    assert failed.returncode != 0
    assert [source.health(gpu) for gpu in gpus] == [HEALTHY] * len(gpus)
