"""Fixtures: a machine with a simulated GPU for each test, and no agent (see tests/hook/harness.py)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hook.harness import Machine


@pytest.fixture
def bare_machine(c_build: Path) -> Iterator[Machine]:
    """A machine without an agent."""
    with Machine(c_build) as machine:
        yield machine


@pytest.fixture
def preloaded(bare_machine: Machine) -> dict[str, str]:
    """The environment of a program with the hook preloaded; there is no agent."""
    return bare_machine.client_environment(bare_machine.client_root())
