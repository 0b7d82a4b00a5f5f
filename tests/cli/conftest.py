"""Fixtures for tests of commands: a root whose agent ends with the test."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from orion.cli import agents
from orion.node_agent.api.client import NoAgent
from tests.processes import is_running
from tests.waiting import eventually


@pytest.fixture
def root(socket_folder: Path) -> Iterator[Path]:
    """A folder for `--root`; commands start an agent there."""
    yield socket_folder
    try:
        agent = agents.ask(socket_folder).agent_process_id
    except NoAgent:
        return
    os.kill(agent, signal.SIGTERM)
    eventually(lambda: not is_running(agent), "the agent's end")
