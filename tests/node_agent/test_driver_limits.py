"""The driver's limits of containers follow the limits of slots. No driver here has them: `FakeDriver` stands in."""

import asyncio
import threading
import types
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orion.errors import Unavailable
from orion.node_agent.driver_limits import applying
from orion.node_agent.driver_limits.applying import DriverLimits
from orion.node_agent.driver_limits.nvml import NvmlLimits
from tests.waiting import DEADLINE

GPU = "GPU-00000000-0000-4000-8000-000000000000"
GIB = 1 << 30


class FakeDriver:
    """Keeps limits as a driver from 615 on would; a test may let it refuse all calls."""

    def __init__(self) -> None:
        self.limits: dict[tuple[str, str], int] = {}
        self.refuses = ""
        self.calls = 0

    def set(self, gpu: str, cgroup: Path, limit_bytes: int) -> None:
        self._call()
        self.limits[gpu, cgroup.name] = limit_bytes

    def remove(self, gpu: str, cgroup: Path) -> None:
        self._call()
        self.limits.pop((gpu, cgroup.name), None)

    def _call(self) -> None:
        self.calls += 1
        if self.refuses:
            raise Unavailable(self.refuses)


class World:
    """A GPU with slots, whose containers have cgroups that are folders of the test."""

    def __init__(self, folder: Path) -> None:
        self.driver, self.now = FakeDriver(), 100.0
        self._folder = folder
        self._of_process: dict[int, Path] = {}
        self._slots: dict[str, Any] = {}
        self._clients: list[Any] = []
        shared = SimpleNamespace(
            slots=self._slots, of_slot=lambda slot: [each for each in self._clients if each.slot is slot]
        )
        self.conditions = SimpleNamespace(driver_limits="")
        gpus: Any = {GPU: SimpleNamespace(shared_gpu=shared, conditions=self.conditions)}
        self.cgroup_of = self._of_process.get
        self.limits = DriverLimits(self.driver, gpus, self.cgroup_of, lambda: self.now)

    def slot(self, name: str, holder: str, limit: int) -> Any:
        grant = SimpleNamespace(memory_limit_bytes=limit)
        parking = SimpleNamespace(left_bytes=0)
        self._slots[name] = SimpleNamespace(name=name, holder=holder, claim=None, grant=grant, parking=parking)
        return self._slots[name]

    def joins(self, slot: Any, process_id: int, container: str = "") -> None:
        if container:
            self._of_process[process_id] = self._folder / container
            self._of_process[process_id].mkdir(exist_ok=True)
        self._clients.append(SimpleNamespace(slot=slot, process_id=process_id))

    def leaves(self, process_id: int) -> None:
        self._clients = [each for each in self._clients if each.process_id != process_id]

    async def look(self) -> dict[str, int]:
        """Let the agent look; return the limits by container."""
        await self.limits.look()
        return {container: limit for (_, container), limit in self.driver.limits.items()}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def test_a_container_has_the_limit_of_its_slot_until_the_slot_is_released(world: World) -> None:
    slot = world.slot("be-0", "n/p", 2 * GIB)
    assert await world.look() == {}
    world.joins(slot, 7, "a")
    assert await world.look() == {"a": 2 * GIB}
    slot.grant.memory_limit_bytes = GIB
    assert await world.look() == {"a": GIB}
    world.leaves(7)
    assert await world.look() == {"a": GIB}  # its next process is limited from its first allocation
    assert world.driver.calls == 2
    slot.holder = ""
    assert await world.look() == {}


async def test_the_next_holder_of_a_slot_does_not_limit_the_last_ones_container(world: World) -> None:
    slot = world.slot("be-0", "n/p", 2 * GIB)
    world.joins(slot, 7, "a")
    await world.look()
    world.leaves(7)
    slot.holder = "n/q"
    world.joins(slot, 8, "b")
    assert await world.look() == {"b": 2 * GIB}


async def test_a_limit_that_is_taken_off_the_share_is_removed(world: World) -> None:
    slot = world.slot("be-0", "n/p", 2 * GIB)
    world.joins(slot, 7, "a")
    await world.look()
    slot.grant.memory_limit_bytes = 0
    assert await world.look() == {}


async def test_processes_that_are_away_can_come_back_also_if_the_limit_was_lowered_meanwhile(world: World) -> None:
    slot = world.slot("be-0", "n/p", 2 * GIB)
    world.joins(slot, 7, "a")
    await world.look()
    slot.parking.left_bytes, slot.grant.memory_limit_bytes = 2 * GIB - 1, GIB
    assert await world.look() == {"a": 2 * GIB - 1}
    slot.parking.left_bytes = 0
    assert await world.look() == {"a": GIB}


async def test_a_limit_that_was_taken_off_while_no_agent_ran_is_removed_once(world: World) -> None:
    slot = world.slot("be-0", "n/p", 0)
    world.joins(slot, 7, "a")
    world.driver.limits[GPU, "a"] = 2 * GIB  # by the agent before
    assert await world.look() == {}
    assert await world.look() == {}
    assert world.driver.calls == 1
    slot.grant.memory_limit_bytes = GIB
    assert await world.look() == {"a": GIB}


async def test_a_container_without_a_limit_lacks_none(world: World) -> None:
    slot = world.slot("be-0", "n/p", 0)
    world.joins(slot, 7, "a")
    world.joins(slot, 8)
    world.driver.refuses = "this driver has no memory limits"
    await world.look()
    await world.look()
    assert (world.conditions.driver_limits, world.driver.calls) == ("", 1)


async def test_slots_of_no_pod_have_no_cgroup_of_their_own(world: World) -> None:
    world.joins(world.slot("be-0", "", 2 * GIB), 7, "a")
    assert await world.look() == {}


async def test_a_claim_is_a_holder_and_its_containers_have_its_limit_each(world: World) -> None:
    slot = world.slot("be-0", "", 2 * GIB)
    slot.claim = SimpleNamespace(uid="c")
    world.joins(slot, 7, "a")
    world.joins(slot, 8, "b")
    assert await world.look() == {"a": 2 * GIB, "b": 2 * GIB}


async def test_a_container_that_is_gone_needs_no_call(world: World, tmp_path: Path) -> None:
    slot = world.slot("be-0", "n/p", 2 * GIB)
    world.joins(slot, 7, "a")
    await world.look()
    calls = world.driver.calls
    (tmp_path / "a").rmdir()
    slot.holder = ""
    await world.look()
    assert world.driver.calls == calls


async def test_a_refused_limit_is_a_condition_and_is_tried_again_later(world: World) -> None:
    slot = world.slot("be-0", "n/p", 2 * GIB)
    world.joins(slot, 7, "a")
    world.driver.refuses = "too much is in use"
    await world.look()
    assert world.conditions.driver_limits == (
        "the driver holds no limit for a container, so only the hook's limit holds: too much is in use"
    )
    await world.look()
    assert world.driver.calls == 1
    world.driver.refuses = ""
    world.now += 31
    assert await world.look() == {"a": 2 * GIB}
    assert world.conditions.driver_limits == ""


async def test_a_limit_that_the_driver_keeps_is_removed_later(world: World) -> None:
    slot = world.slot("be-0", "n/p", 2 * GIB)
    world.joins(slot, 7, "a")
    await world.look()
    slot.holder, world.driver.refuses = "", "busy"
    assert await world.look() == {"a": 2 * GIB}
    assert world.conditions.driver_limits == "the driver keeps an earlier limit of a container: a: busy"
    world.driver.refuses = ""
    assert await world.look() == {}
    assert world.conditions.driver_limits == ""


async def test_a_limit_that_the_driver_keeps_is_named_until_its_container_ends(world: World, tmp_path: Path) -> None:
    slot = world.slot("be-0", "n/p", 2 * GIB)
    world.joins(slot, 7, "a")
    await world.look()
    slot.grant.memory_limit_bytes, world.driver.refuses = 0, "busy"
    for _ in range(2):
        await world.look()
        assert "keeps an earlier limit of a container: a: busy" in world.conditions.driver_limits
    slot.holder = ""
    await world.look()
    assert "keeps an earlier limit of a container: a: busy" in world.conditions.driver_limits
    (tmp_path / "a").rmdir()
    await world.look()
    assert world.conditions.driver_limits == ""


async def test_an_earlier_limit_that_the_driver_does_not_change_is_named(world: World) -> None:
    slot = world.slot("be-0", "n/p", 2 * GIB)
    world.joins(slot, 7, "a")
    await world.look()
    slot.grant.memory_limit_bytes, world.driver.refuses = 4 * GIB, "busy"
    assert await world.look() == {"a": 2 * GIB}
    assert world.conditions.driver_limits == "the driver keeps an earlier limit of a container: a: busy"


async def test_a_driver_that_hangs_for_one_gpu_holds_the_limits_of_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(applying, "_ANSWER_SECONDS", 0.05)
    answers, hold = threading.Event(), world.driver.set

    def hang(gpu: str, cgroup: Path, limit_bytes: int) -> None:
        assert gpu == GPU or answers.wait(DEADLINE)
        hold(gpu, cgroup, limit_bytes)

    monkeypatch.setattr(world.driver, "set", hang)
    world.joins(world.slot("be-0", "n/p", 2 * GIB), 7, "a")
    served: Any = world.limits._gpus[GPU]
    limits = DriverLimits(world.driver, {"GPU-hangs": served, GPU: served}, world.cgroup_of)

    async def until_limited(gpu: str) -> None:
        async with asyncio.timeout(DEADLINE):
            while (gpu, "a") not in world.driver.limits:
                await limits.look()
                await asyncio.sleep(0)

    await until_limited(GPU)
    answers.set()
    await until_limited("GPU-hangs")
    limits.close()


async def test_a_container_whose_cgroup_is_not_found_is_named(world: World) -> None:
    world.joins(world.slot("be-0", "n/p", 2 * GIB), 7)
    assert await world.look() == {}
    assert "the cgroup of a process in slot be-0 was not found" in world.conditions.driver_limits


# -- NVML --------------------------------------------------------------------------------------------------------------

FUNCTION_NOT_FOUND, IN_USE = 13, 19


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"error {value}")
        self.value = value


class FakeNvml(types.ModuleType):
    """The functions of nvidia-ml-py 13.615 that set limits."""

    NVMLError = NVMLError
    NVML_ERROR_FUNCTION_NOT_FOUND = FUNCTION_NOT_FOUND
    NVML_DEVICE_MEMORY_LIMIT_MAX = 2**64 - 1
    c_nvmlSetMemoryLimits_v1_t = SimpleNamespace  # noqa: N815  (the library's own name)

    def __init__(self, error: int = 0) -> None:
        super().__init__("pynvml")
        self.begun, self.made = 0, list[tuple[Any, ...]]()

        def set_limits(device: str, limits: Any) -> None:
            if error:
                raise NVMLError(error)
            self.made.append((device, limits.nameSpace, limits.softLimit, limits.hardLimit))

        functions: dict[str, Callable[..., Any]] = {
            "nvmlInit": lambda: self._count(1),
            "nvmlShutdown": lambda: self._count(-1),
            "nvmlDeviceGetHandleByUUID": lambda uuid: f"handle of {uuid.decode()}",
            "nvmlDeviceSetMemoryLimits_v1": set_limits,
        }
        self.__dict__.update(functions)

    def _count(self, change: int) -> None:
        self.begun += change


def installed(monkeypatch: pytest.MonkeyPatch, nvml: FakeNvml) -> NvmlLimits:
    monkeypatch.setitem(__import__("sys").modules, "pynvml", nvml)
    return NvmlLimits()


def test_nvml_gets_the_whole_path_and_a_hard_limit_only(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeNvml()
    limits = installed(monkeypatch, nvml)
    limits.set(GPU, Path("/sys/fs/cgroup/pod/c"), GIB)
    limits.remove(GPU, Path("/sys/fs/cgroup/pod/c"))
    handle = f"handle of {GPU}"
    assert nvml.made == [(handle, b"/sys/fs/cgroup/pod/c", 0, GIB), (handle, b"/sys/fs/cgroup/pod/c", 0, 2**64 - 1)]
    assert nvml.begun == 0


@pytest.mark.parametrize(
    ("error", "says"),
    [(FUNCTION_NOT_FOUND, "this driver has no memory limits"), (IN_USE, "refuses the limit: error 19")],
)
def test_a_driver_without_limits_says_so(monkeypatch: pytest.MonkeyPatch, error: int, says: str) -> None:
    nvml = FakeNvml(error)
    with pytest.raises(Unavailable, match=says):
        installed(monkeypatch, nvml).set(GPU, Path("/c"), GIB)
    assert nvml.begun == 0


def test_an_earlier_binding_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeNvml()
    del nvml.nvmlDeviceSetMemoryLimits_v1
    with pytest.raises(Unavailable, match="older than 13"):
        installed(monkeypatch, nvml).set(GPU, Path("/c"), GIB)


def test_the_installed_binding_has_what_is_called() -> None:
    import pynvml

    made = pynvml.c_nvmlSetMemoryLimits_v1_t()
    made.nameSpace, made.softLimit, made.hardLimit = b"/c", 0, pynvml.NVML_DEVICE_MEMORY_LIMIT_MAX
    assert made.hardLimit == 2**64 - 1
    assert callable(pynvml.nvmlDeviceSetMemoryLimits_v1)
    assert isinstance(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, int)
