"""What a client says may be any figure; what the agent shows fits into its API."""

import pytest

from orion.node_agent.api import agent_pb2
from orion.node_agent.snapshots import whole_memory

MOST = 2**64 - 1


@pytest.mark.parametrize(
    ("said", "uncounted_mib", "shown"),
    [(5, 0, 5), (5, 1, 5 + (1 << 20)), (MOST, 500, MOST), (MOST - 5, 1, MOST), (0, 2**50, MOST)],
)
def test_what_a_process_holds_fits_into_the_api(said: int, uncounted_mib: int, shown: int) -> None:
    held = whole_memory(said, uncounted_mib)
    assert held == shown
    assert agent_pb2.Client(memory_bytes=held).memory_bytes == shown
