"""`orion.inprocess` with torch on a real GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from orion import hook
from orion.cli.launching import preloading_environment

pytestmark = pytest.mark.gpu
PROGRAM = Path(__file__).with_name("threads_stack_program.py")


def test_torch_in_threads() -> None:
    environment = preloading_environment(os.environ, hook.library(), None)
    done = subprocess.run([sys.executable, str(PROGRAM)], env=environment, capture_output=True, text=True, timeout=180)
    results = json.loads(done.stdout.splitlines()[-1])
    assert all(result is True for result in results.values()), (results, done.stderr[-2000:])
