"""The examples' program, compiled as their image has it."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.hook.harness import Machine
from tools.cluster import example_image


@pytest.fixture(scope="session")
def workload() -> Path:
    return example_image.build()


@pytest.fixture
def machine(c_build: Path) -> Iterator[Machine]:
    """Simulated GPUs and an agent of their own."""
    with Machine(c_build) as machine:
        machine.start_agent()
        yield machine
