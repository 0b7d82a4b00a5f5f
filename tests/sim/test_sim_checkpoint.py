"""A process that leaves the simulated GPU by a checkpoint, beside other processes and under settings of the machine."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.sim.worker_process import StartWorker, workers
from tests.waiting import eventually

GIB = 1 << 30
SUCCESS, OUT_OF_MEMORY, OPERATING_SYSTEM, ILLEGAL_STATE, NOT_SUPPORTED = 0, 2, 304, 401, 801
FAILED = 3
LIST = """
import json, pynvml as nvml
nvml.nvmlInit()
handle = nvml.nvmlDeviceGetHandleByIndex(0)
pids = [each.pid for each in nvml.nvmlDeviceGetComputeRunningProcesses(handle)]
print(json.dumps([nvml.nvmlDeviceGetMemoryInfo(handle).used, sorted(pids)]))
"""


@pytest.fixture
def start_worker(machine: dict[str, str]) -> Iterator[StartWorker]:
    with workers("checkpoint_worker.py", {**machine, "ORION_SIM_MEMORY": "4GiB"}) as start:
        yield start


def on_gpu(environment: dict[str, str]) -> tuple[int, list[int]]:
    """What NVML shows: the bytes in use, and the processes."""
    done = subprocess.run([sys.executable, "-c", LIST], env=environment, capture_output=True, text=True, check=True)
    used, pids = json.loads(done.stdout)
    return used, pids


def test_another_process_gets_the_memory_and_gives_it_back(start_worker: StartWorker, machine: dict[str, str]) -> None:
    one, other = start_worker(), start_worker()
    assert one.codes(f"alloc {3 * GIB}") == [SUCCESS]
    assert other.codes(f"alloc {3 * GIB}") == [OUT_OF_MEMORY]
    assert on_gpu(machine) == (3 * GIB, sorted([one.pid, other.pid]))
    assert one.codes("lock", "checkpoint") == [SUCCESS] * 2
    assert on_gpu(machine) == (0, [other.pid])
    assert other.codes("free", f"alloc {3 * GIB}") == [4 * GIB, SUCCESS]
    assert on_gpu(machine) == (3 * GIB, [other.pid])
    assert other.codes("lock", "checkpoint") == [SUCCESS] * 2
    assert one.codes("restore", "unlock") == [SUCCESS] * 2
    assert on_gpu(machine) == (3 * GIB, [one.pid])
    assert one.codes("free") == [GIB]


def test_a_restore_without_room_loses_the_process(start_worker: StartWorker, machine: dict[str, str]) -> None:
    one, other = start_worker(), start_worker()
    assert one.codes(f"alloc {3 * GIB}", "lock", "checkpoint") == [SUCCESS] * 3
    assert other.codes(f"alloc {2 * GIB}") == [SUCCESS]
    assert one.codes("restore", "restore", "unlock", "state") == [
        OUT_OF_MEMORY,
        OPERATING_SYSTEM,
        ILLEGAL_STATE,
        FAILED,
    ]
    assert on_gpu(machine) == (2 * GIB, [other.pid])


def test_a_process_that_is_killed_while_it_is_away_leaves_nothing(
    start_worker: StartWorker, machine: dict[str, str]
) -> None:
    one, other = start_worker(), start_worker()
    assert other.codes(f"alloc {GIB}") == [SUCCESS]
    assert one.codes(f"alloc {2 * GIB}", "lock", "checkpoint") == [SUCCESS] * 3
    one.end()
    assert on_gpu(machine) == (GIB, [other.pid])
    assert other.codes("free", f"alloc {3 * GIB}") == [3 * GIB, SUCCESS]
    third = start_worker()  # it may have the entry of the dead process
    assert on_gpu(machine) == (4 * GIB, sorted([other.pid, third.pid]))


def test_the_memory_of_contexts_is_free_too(start_worker: StartWorker) -> None:
    one, other = (start_worker(ORION_SIM_CONTEXT_MEMORY="1GiB") for _ in range(2))
    assert one.codes("lock", "checkpoint") == [SUCCESS] * 2
    assert other.codes("free") == [3 * GIB]
    assert one.codes("restore", "unlock", "free") == [SUCCESS, SUCCESS, 2 * GIB]


def test_memory_of_another_process_loses_the_process(start_worker: StartWorker) -> None:
    owner, user = start_worker(), start_worker()
    handle = owner.do("share")
    assert user.do(f"open {handle}") == "word"
    assert owner.codes("lock", "checkpoint", "unlock") == [SUCCESS, NOT_SUPPORTED, SUCCESS]
    assert user.codes("lock", "checkpoint", "restore") == [SUCCESS, SUCCESS, OPERATING_SYSTEM]


@pytest.mark.parametrize("milliseconds", ["20", "100000"])
def test_nvml_lists_the_process_for_as_long_as_the_machine_says(
    start_worker: StartWorker, machine: dict[str, str], milliseconds: str
) -> None:
    one = start_worker(ORION_SIM_LISTED_MS=milliseconds)
    assert one.codes(f"alloc {GIB}", "lock", "checkpoint") == [SUCCESS] * 3
    eventually(lambda: on_gpu(machine) == (0, [one.pid] if milliseconds == "100000" else []))
    assert one.codes("restore", "unlock") == [SUCCESS] * 2
    assert on_gpu(machine) == (GIB, [one.pid])


@pytest.mark.parametrize(
    ("settings", "error"),
    [({"ORION_SIM_MODE": "mps"}, "NOT_SUPPORTED"), ({"ORION_SIM_MIG": "0"}, "OUT_OF_MEMORY")],
)
def test_gpus_that_are_shared_otherwise_are_refused(
    run_scenario: Callable[..., object], settings: dict[str, str], error: str
) -> None:
    run_scenario("scenario_checkpoint_refused.py", "a_checkpoint_is_refused", error, **settings)


def test_a_change_takes_the_time_that_the_machine_says(run_scenario: Callable[..., object]) -> None:
    times = {"ORION_SIM_LOCK_US": "2000", "ORION_SIM_OUT_MS_PER_GIB": "450", "ORION_SIM_BACK_MS_PER_GIB": "170"}
    scenario = "a_change_takes_the_time_that_the_machine_says"
    run_scenario("scenario_checkpoint.py", scenario, *times.values(), ORION_SIM_CLOCK="virtual", **times)


def test_an_old_driver_has_no_checkpoints(run_scenario: Callable[..., object], c_build: Path) -> None:
    library = str(c_build / "sim" / "old")
    run_scenario("scenario_checkpoint_refused.py", "the_driver_has_no_checkpoints", library, LD_LIBRARY_PATH=library)
