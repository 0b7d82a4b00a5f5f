"""An agent process whose driver hangs still answers and ends."""

import subprocess
from pathlib import Path

import pytest

from orion.node_agent.api.client import AgentClient
from tests.node_agent.conftest import AgentProcess

_HANGING = """
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>
int orion_sim_gpu_count(void) { return 1; }
int orion_sim_gpu_uuid(int i, char *u) {
    (void)i;
    __builtin_strcpy(u, "GPU-00000000-0000-4000-8000-000000000000");
    return 0;
}
const char *orion_sim_gpu_name(int i) { (void)i; return "A name"; }
int orion_sim_gpu_memory(int i, uint64_t *total, uint64_t *used) {
    (void)i;
    while (access(getenv("ORION_TEST_HANGS"), F_OK) == 0) usleep(1000);
    *total = UINT64_C(8) << 30;
    *used = 0;
    return 0;
}
int orion_sim_gpu_processes(int i, uint32_t *p, uint64_t *m, int n) { (void)i, (void)p, (void)m, (void)n; return 0; }
"""


def test_a_driver_that_hangs_blocks_neither_answers_nor_the_agents_end(
    socket_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (socket_folder / "hanging.c").write_text(_HANGING)
    library, hangs = socket_folder / "libcuda.so.1", socket_folder / "hangs"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, socket_folder / "hanging.c"], check=True)
    monkeypatch.setenv("ORION_TEST_HANGS", str(hangs))
    agent = AgentProcess(socket_folder / "root", library)
    agent.start()
    try:
        hangs.touch()
        with AgentClient(agent.root) as administrator:
            assert [gpu.memory_bytes for gpu in administrator.snapshot().gpus] == [8 << 30]
        assert agent.terminate() == 0
    finally:
        hangs.unlink()
        if agent.process is not None:
            agent.kill()
