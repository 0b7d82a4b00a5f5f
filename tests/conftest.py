"""What tests of several rooms share: the compiled test programs and a short folder for sockets.

Marks do not skip silently: a test marked gpu or cluster is left out of a plain run, and `make test` names the tiers
that did not run in its last line.
"""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# The same examples in every run, and none too slow: two busy cores can make any of them take seconds.
settings.register_profile(
    "orion", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("orion")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background by a shell without job control: programs that we start would inherit it, deaf to Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parent.parent
OUTSIDE_TIERS = ("cluster", "gpu", "node")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("node"):
            # Pods and releases are there for all tests of a file, or of such a folder: one worker has them all.
            scene = item.path.parent if item.path.parent.name == "on_cluster" else item.path
            item.add_marker(pytest.mark.xdist_group(scene.name))
    if config.getoption("markexpr"):
        return
    left_out = [item for item in items if any(item.get_closest_marker(tier) for tier in OUTSIDE_TIERS)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def _build_folder() -> Path:
    if shared := os.environ.get("ORION_TEST_BUILD"):  # one of the same kind that `make` has compiled already
        return Path(shared)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "orion" / f"tests-{zlib.crc32(str(ROOT).encode())}"


@pytest.fixture(scope="session")
def c_build() -> Path:
    """A current CMake build with ORION_TESTS=ON: liborion_hook.so, sim/libcuda.so.1 and the programs under test/.

    The workers of pytest-xdist share it; a lock lets one of them compile while the others wait.
    """
    folder = _build_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        configure = ["cmake", "-S", str(ROOT / "hook"), "-B", str(folder), "-DORION_TESTS=ON"]
        configure += [f"-DPython3_EXECUTABLE={sys.executable}", "-DCMAKE_BUILD_TYPE=Release"]
        if shutil.which("ninja") and not (folder / "CMakeCache.txt").exists():
            configure += ["-G", "Ninja"]
        for command in (configure, ["cmake", "--build", str(folder)]):
            done = subprocess.run(command, capture_output=True, text=True)
            assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture
def socket_folder() -> Iterator[Path]:
    """A folder of its own with a short path: a Unix socket's path has at most 107 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="orion-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
