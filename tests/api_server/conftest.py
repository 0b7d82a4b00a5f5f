"""Fixtures for tests of credential plugins."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.api_server.log_in_program import Guarded, Plugin
from tests.operator.scripted_api import ScriptedApi, script

__all__ = ["script"]


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    return Plugin(tmp_path)


@pytest.fixture
async def guarded(plugin: Plugin, script: ScriptedApi) -> AsyncIterator[Guarded]:
    found = Guarded(script, plugin)
    yield found
    await found.close()
