"""A slot whose device memory is managed memory: more than the GPU has, within the limit, and what stays on the GPU."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from orion.hook.layout import ParkingReason, ParkingState
from orion.node_agent.api.client import RequestRefused
from tests.hook.harness import Machine, record_word
from tests.hook.scripted_client import Client, eventually

MIB = 1 << 20
GPU = 1024
""" The memory of the simulated GPU, in MiB. """
LIMIT, REQUEST = 3072, 256
""" Of the slot be-0, in MiB. """
OUT_OF_MEMORY, INVALID_VALUE = 2, 1
""" CUDA's numbers. """
BY_PITCH, MANAGED, ASYNC, VMM = 1, 2, 3, 5
""" Ways to allocate (hook/test/client_scripted/allocations.c). """


@contextmanager
def with_gpu_of(c_build: Path, **settings: str) -> Iterator[Machine]:
    with Machine(c_build) as machine:
        shutil.rmtree(machine.state)  # it is made again at its first use
        machine.environment |= {"ORION_SIM_MEMORY": str(GPU * MIB), **settings}
        machine.start_agent()
        yield machine


@pytest.fixture
def small(c_build: Path) -> Iterator[Machine]:
    """A machine with a small GPU."""
    with with_gpu_of(c_build) as machine:
        yield machine


@pytest.fixture
def slow_faults(c_build: Path) -> Iterator[Machine]:
    """The same; page faults bring a GiB in a second, a prefetch does in 22 ms."""
    with with_gpu_of(c_build, ORION_SIM_FAULT_GIB_PER_S="1") as machine:
        yield machine


def moving(machine: Machine, slot: str = "be-0", limit: int = LIMIT, request: int = REQUEST) -> Client:
    machine.agent.set_grant(
        machine.uuids[0],
        slot,
        memory_unified=True,
        memory_limit_bytes=limit * MIB,
        memory_request_bytes=request * MIB,
    )
    client = machine.start(slot)
    machine.until_joined(client)
    return client


def test_more_than_the_gpu_has_is_allocated_up_to_the_limit(small: Machine) -> None:
    be = moving(small)
    assert be.do("info").result == be.do("total 0").result == LIMIT * MIB
    be.must(f"alloc {2000 * MIB}")
    assert be.do("ismanaged").result == 1
    be.must(f"alloc {1000 * MIB} {BY_PITCH}")
    assert be.do(f"alloc {100 * MIB}").result == OUT_OF_MEMORY
    assert be.do("room").result == (LIMIT - 3000) * MIB
    assert record_word(be, "memory_bytes") == 3000 * MIB
    be.must("run 2 100")
    assert be.do("freelast").result == 0
    assert record_word(be, "memory_bytes") == 1000 * MIB


def test_other_slots_get_device_memory(small: Machine) -> None:
    moving(small)
    other = small.start("be-1")
    other.must(f"alloc {100 * MIB}")
    assert other.do("ismanaged").result == 0
    assert other.do(f"alloc {GPU * MIB}").result == OUT_OF_MEMORY


@pytest.mark.parametrize("way", [ASYNC, VMM])
def test_what_cannot_move_is_bounded_by_the_request(small: Machine, way: int) -> None:
    be = moving(small)
    be.must(f"alloc {1500 * MIB}")
    be.must(f"alloc {160 * MIB} {way}")
    assert be.do(f"alloc {160 * MIB} {way}").result == OUT_OF_MEMORY
    be.must(f"alloc {500 * MIB} {MANAGED}")
    assert record_word(be, "memory_bytes") == 2160 * MIB
    assert record_word(be, "memory_refusals") == 1


def test_the_driver_refuses_to_share_it(small: Machine) -> None:
    be = moving(small)
    be.must(f"alloc {10 * MIB}")
    assert be.do("sharelast").result == INVALID_VALUE


def test_memory_of_others_drives_it_out_and_its_kernels_bring_it_back(small: Machine) -> None:
    be, other = moving(small), small.start_in(None)
    be.must(f"alloc {800 * MIB}")
    other.must("init 0")
    other.must(f"alloc {600 * MIB}")
    assert other.do("room").result == 0
    other.kill()
    monitor = small.start_in(None)
    monitor.must("init 0")

    def is_back() -> bool:
        be.must("run 1 100")  # which needs all of it
        return monitor.do("room").result == (GPU - 800) * MIB

    eventually(is_back, "its pages are back")


@pytest.mark.parametrize(("slots", "mib"), [(2, 600), (3, 400)], ids=["one fits", "two fit"])
def test_slots_that_do_not_fit_together_compute_in_turns(slow_faults: Machine, slots: int, mib: int) -> None:
    """Each has 0.4 s of kernels. If page faults brought the memory, each turn would have about one of 400 kernels."""
    clients = []
    for number in range(slots):
        clients.append(moving(slow_faults, f"be-{number}", limit=mib, request=64))
        clients[-1].must(f"alloc {mib * MIB}")
        clients[-1].must("run 8 1000")
    for client in clients:
        client.send("run 400 1000")
    for client in clients:
        assert client.answer(60).result == 0


def test_it_cannot_be_parked(small: Machine) -> None:
    be = moving(small)
    be.must(f"alloc {10 * MIB}")
    with pytest.raises(RequestRefused, match="its memory is managed"):
        small.agent.park_slot(small.uuids[0], "be-0", True)
    small.agent.set_grant(small.uuids[0], "be-0", memory_unified=False, memory_parks=True)
    small.agent.park_slot(small.uuids[0], "be-0", True)

    def refuses() -> bool:
        be.must("run 1 100")  # a launch starts the thread that answers
        return record_word(be, "parking") & 255 == ParkingState.REFUSED

    eventually(refuses, "it refuses to leave")
    assert record_word(be, "parking") >> 8 & 255 == ParkingReason.MANAGED
    be.must("run 2 100")


def test_the_next_agent_goes_on_with_it(small: Machine) -> None:
    be = moving(small)
    small.kill_agent()
    small.start_agent()
    small.until_joined(be)
    be.must(f"alloc {2000 * MIB}")
    assert be.do("ismanaged").result == 1


@pytest.mark.parametrize(
    ("slot", "grant", "sentence"),
    [
        ("hp-0", {"memory_limit_bytes": MIB}, "hp's memory never leaves the GPU"),
        ("be-0", {"memory_limit_bytes": MIB, "memory_parks": True}, "managed memory cannot be parked"),
        ("be-0", {}, "needs memory_limit_bytes"),
    ],
)
def test_a_slot_that_cannot_have_it_is_refused(small: Machine, slot: str, grant: dict[str, Any], sentence: str) -> None:
    with pytest.raises(RequestRefused, match=sentence):
        small.agent.set_grant(small.uuids[0], slot, memory_unified=True, **grant)
