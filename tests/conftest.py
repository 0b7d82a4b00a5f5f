"""Fixtures of several packages' tests: the compiled test programs and a short folder for sockets.

A plain `pytest` leaves out the tests with the marks gpu, cluster, neighbours and node. The last line of `make test`
names the tiers that did not run.
"""

import fcntl
import gc
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from tests.loaded import BY_PYTHON
from tools.tiers.scenes import scene

# The same examples in every run, and no time limit for one: two busy cores can make any of them take seconds.
settings.register_profile(
    "orion", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("orion")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell without job control that starts pytest in the background sets these signals to be ignored. Programs that
    # we start would inherit that and not react to Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parent.parent
OUTSIDE_TIERS = ("cluster", "gpu", "neighbours", "node")
TIERS = (*OUTSIDE_TIERS, "quiet")


class Scenes(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """With --dist loadscope: one worker gets all tests of a scene, in order, so it makes their shared state once.

    Rejected: --dist loadgroup, which marks node ids in a way that this pytest does not show.
    """

    def _split_scope(self, nodeid: str) -> str:
        return scene(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return Scenes(config, log) if config.getvalue("dist") == "loadscope" else None


def pytest_sessionstart() -> None:
    # The million objects of a collection stay. To search them for garbage again and again takes a third of its time.
    gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    _look_for_hidden_marks(items)
    if config.getoption("markexpr"):
        return
    left_out = [item for item in items if any(item.get_closest_marker(tier) for tier in OUTSIDE_TIERS)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def _look_for_hidden_marks(items: list[pytest.Item]) -> None:
    """Reject a tier's mark that is not written in the test's file, because tools/tiers searches the files for it."""
    text = {path: path.read_text() for path in {item.path for item in items}}
    for item, tier in itertools.product(items, TIERS):
        if item.get_closest_marker(tier) and f"mark.{tier}" not in text[item.path]:
            raise pytest.UsageError(f"{item.nodeid}: write the mark {tier} into this file: `make test` searches there")


def _build_folder() -> Path:
    if shared := os.environ.get("ORION_TEST_BUILD"):  # a build of the same kind that `make` has already compiled
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
def by_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python starts the test's programs, as users do: for tests of what a process costs."""
    monkeypatch.setenv(BY_PYTHON, "0")


@pytest.fixture
def socket_folder() -> Iterator[Path]:
    """A separate folder with a short path: a Unix socket's path has at most 107 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="orion-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
