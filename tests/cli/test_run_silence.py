"""`orion run` hides gRPC's message about threads.

While `orion run` becomes the program (exec), it cannot create threads, but gRPC tries to: in one of seven runs under
load gRPC printed a line about that on standard error. Here a memory limit prevents new threads all the time.
"""

import os
import subprocess
import sys

import pytest

_NO_MORE_THREADS = """
import resource, signal
from orion.cli import run
with run._silent_grpc():
    import grpc
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (4 << 20),) * 2)  # less than a stack
signal.alarm(1)  # gRPC tries again without end
grpc.insecure_channel("unix:/nonexistent")
"""


@pytest.mark.parametrize(
    ("wanted", "reported"), [(None, False), ("ERROR", True)], ids=["by default", "where the user wants to know"]
)
def test_grpcs_message_about_threads_is_hidden_unless_requested(wanted: str | None, reported: bool) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "GRPC_VERBOSITY"}
    environment |= {"GRPC_VERBOSITY": wanted} if wanted else {}
    done = subprocess.run(
        [sys.executable, "-c", _NO_MORE_THREADS], env=environment, capture_output=True, text=True, timeout=60
    )
    assert ("pthread_create failed" in done.stderr) == reported
    assert reported or done.stderr == ""


def test_the_program_does_not_inherit_the_grpc_setting() -> None:
    script = (
        "import os; from orion.cli import run\nwith run._silent_grpc(): pass\nprint('GRPC_VERBOSITY' in os.environ)"
    )
    environment = {name: value for name, value in os.environ.items() if name != "GRPC_VERBOSITY"}
    assert subprocess.check_output([sys.executable, "-c", script], env=environment, text=True) == "False\n"


@pytest.mark.parametrize("wanted", [None, "INFO"])
@pytest.mark.parametrize("command", ["agent", "device_plugin"])
def test_agent_and_plugin_log_only_errors_of_grpc_unless_requested(command: str, wanted: str | None) -> None:
    script = f"""
import os, sys
from orion.cli import {command}
try:
    {command}._run({{"unknown": "option"}})
except Exception:  # refused, after gRPC has been imported
    print("grpc" in sys.modules, os.environ["GRPC_VERBOSITY"])
"""
    environment = {name: value for name, value in os.environ.items() if name != "GRPC_VERBOSITY"}
    environment |= {"GRPC_VERBOSITY": wanted} if wanted else {}
    done = subprocess.check_output([sys.executable, "-c", script], env=environment, text=True)
    assert done == f"True {wanted or 'ERROR'}\n"
