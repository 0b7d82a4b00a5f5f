"""What tests of commands share: a root whose agent ends with the test."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orion.cli import agents
from orion.cli.errors import NoAgent

DEADLINE = 30.0


@pytest.fixture
def root(socket_folder: Path) -> Iterator[Path]:
    """For `--root`; commands start an agent there."""
    yield socket_folder
    try:
        agent = agents.ask(socket_folder).agent_process_id
    except NoAgent:
        return
    os.kill(agent, signal.SIGTERM)
    deadline = time.monotonic() + DEADLINE
    while (socket_folder / "agent.sock").exists():
        assert time.monotonic() < deadline, "the agent does not end"
        time.sleep(0.01)
