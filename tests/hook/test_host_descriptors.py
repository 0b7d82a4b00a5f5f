"""A program that has used up its file descriptors still gets its part of a limit: CUDA needs none for an allocation."""

import sys
from pathlib import Path

import pytest

from tests.hook.limited_slot import LIMIT, MIB, OUT_OF_MEMORY, LimitedTenants
from tests.hook.scripted_client import Client

HELD = 100
""" By the first process of the slot, which has all of its credit. In MiB, as LIMIT. """
FILES = 64
WITHOUT_CLOSE_RANGE = Path(__file__).with_name("without_close_range.py")


@pytest.fixture
def second(tenants: LimitedTenants) -> Client:
    """A process without free descriptors; it must ask for memory."""
    tenants.start().must(f"alloc {HELD * MIB}")
    client = tenants.start()
    assert client.do(f"usefds {FILES}").result > 0
    return client


@pytest.mark.parametrize("way", [0, 2, 3])
def test_the_second_process_of_a_slot_gets_what_the_first_one_does_not_hold(second: Client, way: int) -> None:
    assert second.do(f"alloc {(LIMIT - HELD + 2) * MIB} {way}").result == OUT_OF_MEMORY
    second.must(f"alloc {(LIMIT - 128) * MIB} {way}")
    assert not second.said


def test_the_same_before_linux_5_9(tenants: LimitedTenants) -> None:
    tenants.start().must(f"alloc {HELD * MIB}")
    client = tenants.machine.start_in(tenants.root, sys.executable, str(WITHOUT_CLOSE_RANGE))
    client.must("init 0")
    tenants.machine.until_joined(client)
    assert client.do(f"usefds {FILES}").result > 0
    client.must(f"alloc {HELD * MIB}")
    assert not client.said


def test_threads_that_ask_at_the_same_time_get_memory(second: Client) -> None:
    assert second.do("churn 8 1 1 0").result > 0
    assert not second.said
