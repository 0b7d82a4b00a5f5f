"""Fixtures: a separate machine for each test, with simulated GPUs and an agent (see harness.py)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hook.harness import Machine
from tests.hook.scripted_client import Client


@pytest.fixture
def bare_machine(c_build: Path) -> Iterator[Machine]:
    """A machine without an agent."""
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
