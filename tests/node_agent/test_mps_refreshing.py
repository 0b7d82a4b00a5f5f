"""A process of the MPS daemon refreshes a GPU in mode mps; its failures do not affect the control daemon.

A script replaces NVIDIA's control daemon, and the driver is the simulated one.
"""

import asyncio
import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path

import pytest

from orion import hook
from orion.bench.managed import machine
from orion.hook import switching
from orion.node_agent.mps import refreshing
from orion.node_agent.mps.folder import Phase, Wanted
from orion.node_agent.mps.refreshing import Refresher
from tests.node_agent.mps_daemon import SERVES, MpsDaemon
from tests.processes import is_running
from tests.waiting import eventually, eventually_async

NOWHERE = Path("/")
EXCLUSIVE = """
int cuInit(unsigned flags) { (void)flags; return 0; }
int cuDeviceGet(int *device, int number) { *device = number; return 0; }
int cuDeviceGetAttribute(int *value, int which, int device) { (void)device; *value = which == 20 ? 3 : 0; return 0; }
"""


@pytest.fixture
def simulated() -> Iterator[dict[str, str]]:
    """An environment in which the simulated driver is found."""
    with machine(simulated=True) as environment:
        yield environment


@pytest.fixture
def gpu(simulated: dict[str, str]) -> str:
    """The UUID of the simulated GPU."""
    command = [sys.executable, "-m", "orion.hook.simulated", "show"]
    return subprocess.run(command, env=simulated, capture_output=True, text=True, check=True).stdout.split()[1]


@pytest.fixture
def served(daemon: MpsDaemon, simulated: dict[str, str]) -> MpsDaemon:
    """An MPS daemon with the driver and a control daemon."""
    daemon.environment = {**simulated, "PATH": daemon.environment["PATH"]}
    daemon.write_program(SERVES)
    return daemon


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the pauses short enough for a test."""
    monkeypatch.setattr(refreshing, "_PAUSE_SECONDS", (0.01, 0.04))


def children(parent: int) -> list[int]:
    """Return a process's children that switch contexts."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            name, of = (each / "comm").read_text().strip(), (each / "stat").read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        if name == switching.NAME and int(of) == parent and is_running(int(each.name)):
            found.append(int(each.name))
    return found


def refreshes(daemon: MpsDaemon) -> int:
    """Wait until the refreshing process of a daemon works; return its id."""
    eventually(lambda: "is refreshed every" in daemon.log, f"it is refreshed: {daemon.log}")
    assert daemon.process is not None
    (process_id,) = children(daemon.process.pid)
    return process_id


def test_refreshing_begins_and_ends_with_the_mode(served: MpsDaemon, gpu: str) -> None:
    served.start("--refresh-ms", "40")
    served.folder.want(gpu, Wanted())
    served.until(Phase.RUNNING, gpu)
    process_id = refreshes(served)
    assert f"{gpu}: is refreshed every 40 ms" in served.log
    served.folder.want(gpu, None)
    served.until(None, gpu)
    assert not is_running(process_id)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_refreshing_ends_with_the_mps_daemon(served: MpsDaemon, gpu: str, number: signal.Signals) -> None:
    served.start("--refresh-ms", "5")
    served.folder.want(gpu, Wanted())
    process_id = refreshes(served)
    assert served.end(number) == (-number if number is signal.SIGKILL else 0)
    eventually(lambda: not is_running(process_id), "the refreshing process has ended")
    assert "Traceback" not in served.log


def test_no_gpu_is_refreshed_by_default_and_no_simulated_gpu_ever(served: MpsDaemon, gpu: str) -> None:
    asked = ["--refresh-ms", "40"]
    for options, wanted in (([], Wanted()), (["--refresh-ms", "0"], Wanted()), (asked, Wanted(simulated=True))):
        served.start(*options)
        served.folder.want(gpu, wanted)
        served.until(Phase.RUNNING, gpu)
        assert served.end() == 0
    assert "refreshed" not in served.log


def test_a_missing_driver_is_reported_and_the_control_daemon_continues(daemon: MpsDaemon, gpu: str) -> None:
    daemon.write_program(SERVES)
    daemon.start("--refresh-ms", "40")
    daemon.folder.want(gpu, Wanted())
    before = daemon.until(Phase.RUNNING, gpu)
    eventually(lambda: "is not refreshed" in daemon.log, daemon.log)
    assert "cannot load the CUDA driver: libcuda.so.1" in daemon.log
    assert daemon.state(gpu) == before


def test_intervals_that_are_too_short_are_refused() -> None:
    command = [sys.executable, "-m", "orion.cli", "mps-daemon", "--refresh-ms", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "give at least 5, or 0 for never" in " ".join(done.stderr.split())


# -- The refresher in this process -------------------------------------------------------------------------------------


def refresh(
    refresher: Refresher, scenario: Callable[[], Coroutine[None, None, None]], environment: dict[str, str] | None = None
) -> None:
    """Run a scenario while a GPU is refreshed."""

    async def run() -> None:
        async with refresher.running():
            await scenario()

    with pytest.MonkeyPatch.context() as patch:
        for name, value in (environment or {}).items():
            patch.setenv(name, value)
        asyncio.run(run())
    assert children(os.getpid()) == []


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Callable[[str], int]:
    """Returns how often the log has the given words."""
    caplog.set_level(logging.INFO, logger=refreshing.__name__)
    return lambda words: sum(words in message for message in caplog.messages)


@pytest.mark.usefixtures("short_pauses")
def test_a_dead_process_is_replaced(simulated: dict[str, str], gpu: str, logged: Callable[[str], int]) -> None:
    async def scenario() -> None:
        await eventually_async(lambda: logged("is refreshed every 7 ms"))
        (first,) = children(os.getpid())
        os.kill(first, signal.SIGKILL)
        await eventually_async(lambda: logged("its process ended"))
        await eventually_async(lambda: logged("is refreshed every 7 ms") == 2)

    refresh(Refresher(gpu, 7, NOWHERE), scenario, simulated)


@pytest.mark.usefixtures("short_pauses")
def test_the_same_failure_is_logged_once_and_tried_again(
    simulated: dict[str, str], logged: Callable[[str], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []
    made = asyncio.create_subprocess_exec

    async def counted(*command: str, **more: object) -> asyncio.subprocess.Process:
        tries.append(command)
        return await made(*command, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", counted)

    async def scenario() -> None:
        await eventually_async(lambda: len(tries) >= 3)

    refresh(Refresher("GPU-of-nobody", 40, NOWHERE), scenario, simulated)
    assert logged("is not refreshed, the MPS daemon tries again: cu") == 1


@pytest.mark.usefixtures("short_pauses")
def test_a_failed_start_of_the_process_is_a_failure_like_others(
    logged: Callable[[str], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(switching, "COMMAND", ("/nonexistent/python",))

    async def scenario() -> None:
        await eventually_async(lambda: logged("is not refreshed"))

    refresh(Refresher("GPU-of-nobody", 40, NOWHERE), scenario)
    assert logged("No such file") == 1


def test_a_process_that_hangs_is_given_up_and_does_not_block_the_end(
    logged: Callable[[str], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(switching, "COMMAND", ("/bin/sleep", "1000"))

    async def at_once() -> None:
        await asyncio.sleep(0)

    refresh(Refresher("GPU-of-nobody", 40, NOWHERE), at_once)
    monkeypatch.setattr(switching, "START_SECONDS", 0.05)

    async def scenario() -> None:
        await eventually_async(lambda: logged("no context of its own for 0.05 s"))

    refresh(Refresher("GPU-of-nobody", 40, NOWHERE), scenario)


def test_0_disables_refreshing() -> None:
    async def scenario() -> None:
        assert len(asyncio.all_tasks()) == 1

    refresh(Refresher("GPU-of-nobody", 0, NOWHERE), scenario)


# -- A driver that the loader does not find ----------------------------------------------------------------------------


def driver_root(folder: Path, library: Path) -> Path:
    """Make a driver's root with links as Debian's alternatives make them; some are absolute."""
    (folder / "usr/lib64").mkdir(parents=True)
    (folder / "etc").mkdir()
    (folder / "usr/lib64/libcuda.so.1").symlink_to("/etc/libcuda")
    (folder / "etc/libcuda").symlink_to("libcuda.so.580.1")
    shutil.copy(library, folder / "etc/libcuda.so.580.1")
    (folder / "usr/lib64/libnvidia-nvvm.so.4").symlink_to("/gone")
    (folder / "usr/lib64/libc.so.6").write_text("another system's")
    return folder


@pytest.fixture
def no_driver(simulated: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment of the simulated GPU, without its driver, and with no MPS programs in PATH."""
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    return {**{name: value for name, value in simulated.items() if name != "LD_LIBRARY_PATH"}, "PATH": "/usr/bin"}


def test_the_driver_is_found_below_its_root(
    no_driver: dict[str, str], gpu: str, logged: Callable[[str], int], tmp_path: Path
) -> None:
    async def scenario() -> None:
        await eventually_async(lambda: logged("is refreshed every 40 ms"))
        (process_id,) = children(os.getpid())
        environment = Path(f"/proc/{process_id}/environ").read_bytes().split(b"\0")
        (links,) = [Path(each.decode().partition("=")[2]) for each in environment if each.startswith(b"LD_LIBRARY")]
        assert os.listdir(links) == ["libcuda.so.1"]
        held.append(links)

    held: list[Path] = []
    refresh(Refresher(gpu, 40, driver_root(tmp_path, hook.simulated_driver())), scenario, no_driver)
    assert not held[0].exists()


def test_a_root_without_a_driver_is_named(no_driver: dict[str, str], logged: Callable[[str], int]) -> None:
    async def scenario() -> None:
        await eventually_async(lambda: logged("there is no CUDA driver below /nowhere"))

    refresh(Refresher("GPU-of-nobody", 40, Path("/nowhere")), scenario, no_driver)


def test_no_context_is_made_in_an_exclusive_compute_mode(
    no_driver: dict[str, str], logged: Callable[[str], int], tmp_path: Path
) -> None:
    (tmp_path / "cuda.c").write_text(EXCLUSIVE)
    command = ["cc", "-shared", "-fPIC", "-o", str(tmp_path / "made"), str(tmp_path / "cuda.c")]
    subprocess.run(command, check=True)

    async def scenario() -> None:
        await eventually_async(lambda: logged("compute mode is not Default"))

    refresh(Refresher("GPU-of-nobody", 40, driver_root(tmp_path / "root", tmp_path / "made")), scenario, no_driver)
