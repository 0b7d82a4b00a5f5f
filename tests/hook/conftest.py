"""A machine for each test: simulated GPUs and an agent of its own (see harness.py)."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.hook.harness import Machine
from tests.hook.scripted_client import Client


@pytest.fixture
def bare_machine(c_build: Path) -> Iterator[Machine]:
    """One without an agent."""
    with Machine(c_build) as machine:
        yield machine


@pytest.fixture
def machine(bare_machine: Machine) -> Machine:
    bare_machine.start_agent()
    return bare_machine


@pytest.fixture
def pair(machine: Machine) -> tuple[Client, Client]:
    """An hp and a be client, both managed."""
    return machine.start("hp-0"), machine.start("be-0")
