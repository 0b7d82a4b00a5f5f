"""A slot's second process finds room for its context, and takes none that the first one needs to come back."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hook.harness import Machine

MIB = 1 << 20
GPU, CONTEXT = 4096, 300
""" The memory of the simulated GPU, and what each context takes of it, in MiB. """


@pytest.fixture
def crowded(c_build: Path) -> Iterator[Machine]:
    with Machine(c_build) as machine:
        shutil.rmtree(machine.state)  # it is made again at its first use
        machine.environment |= {"ORION_SIM_MEMORY": str(GPU * MIB), "ORION_SIM_CONTEXT_MEMORY": str(CONTEXT * MIB)}
        stays = ("--parking-stay-factor", "0.5")
        machine.start_agent("--parking-reserve-mib", "0", "--parking-margin-mib", str(CONTEXT), *stays)
        for slot in ("be-0", "be-1"):
            machine.agent.set_grant(machine.uuids[0], slot, memory_parks=True)
        yield machine


def test_a_second_process_gets_its_context_where_another_tenant_leaves_for_it(crowded: Machine) -> None:
    one, other = crowded.start("be-0"), crowded.start("be-1")
    other.must(f"alloc {1900 * MIB}")
    one.must(f"alloc {1500 * MIB}")
    second = crowded.start_in(crowded.client_root("be-0"))
    second.must("init 0", 100)
    for each in (one, other, second):
        each.must("run 2 100", 60)
