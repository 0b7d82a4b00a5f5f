"""While `orion run` becomes the program it can make no threads, and gRPC wants some: in one of seven runs under load
its line about that stood on standard error. Here the lack of threads is a limit of memory, which lasts."""

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
def test_grpc_tells_of_threads_that_it_cannot_make(wanted: str | None, reported: bool) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "GRPC_VERBOSITY"}
    environment |= {"GRPC_VERBOSITY": wanted} if wanted else {}
    done = subprocess.run(
        [sys.executable, "-c", _NO_MORE_THREADS], env=environment, capture_output=True, text=True, timeout=60
    )
    assert ("pthread_create failed" in done.stderr) == reported
    assert reported or done.stderr == ""


def test_the_program_inherits_none_of_it() -> None:
    script = (
        "import os; from orion.cli import run\nwith run._silent_grpc(): pass\nprint('GRPC_VERBOSITY' in os.environ)"
    )
    environment = {name: value for name, value in os.environ.items() if name != "GRPC_VERBOSITY"}
    assert subprocess.check_output([sys.executable, "-c", script], env=environment, text=True) == "False\n"
