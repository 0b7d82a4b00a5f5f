"""The examples' program, compiled as for their image."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import example_image
from tests.hook.harness import Machine


@pytest.fixture(scope="session")
def workload() -> Path:
    return example_image.build()


@pytest.fixture
def machine(c_build: Path) -> Iterator[Machine]:
    """Simulated GPUs and an agent for one test."""
    with Machine(c_build) as machine:
        machine.start_agent()
        yield machine
