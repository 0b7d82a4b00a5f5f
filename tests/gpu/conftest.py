"""Fixtures of the tests on a GPU."""

from collections.abc import Iterator

import pytest

from tests.gpu.mps_node import MpsNode


@pytest.fixture
def mps() -> Iterator[MpsNode]:
    """A node whose GPU is in mode mps."""
    with MpsNode() as node:
        yield node
