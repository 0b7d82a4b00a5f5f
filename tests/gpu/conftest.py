"""What tests on a GPU share."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.gpu.mps_node import MpsNode


@pytest.fixture
def mps() -> Iterator[MpsNode]:
    """A node whose GPU is in mode mps."""
    with MpsNode() as node:
        yield node
