"""Several processes share one simulated GPU: time slices, MPS, killed and stopped clients, and queries without CUDA."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from testbed.process_costs import cpu_seconds
from tests.sim.worker_process import StartWorker
from tests.waiting import eventually

pytestmark = pytest.mark.quiet

HERE = Path(__file__).parent
SLICE_NS = 2_000_000


def pieces(trace: Path) -> list[tuple[int, int, int, str]]:
    whole = [line for line in trace.read_text().splitlines(keepends=True) if line.endswith("\n")]
    rows = [line.rstrip("\n").split(maxsplit=3) for line in whole]
    return sorted((int(start), int(end), int(pid), what) for pid, start, end, what in rows)


def test_two_contexts_are_time_sliced(start_worker: StartWorker, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    both = [start_worker(ORION_SIM_TRACE=str(trace)) for _ in range(2)]
    for worker in both:
        worker.do("launch 10 7000 132")
    for worker in both:
        worker.do("sync")
        worker.begin("exit")
        worker.process.wait(timeout=20)
    rows = pieces(trace)
    assert {pid for _, _, pid, _ in rows} == {worker.pid for worker in both}
    assert {what for *_, what in rows} == {"kernel timed"}
    assert all(end <= start for (_, end, *_), (start, *_) in pairwise(rows))  # never together
    assert sum(end - start for start, end, *_ in rows) == 20 * 7_000_000
    first = max(min(start for start, _, pid, _ in rows if pid == worker.pid) for worker in both)
    last = min(max(end for _, end, pid, _ in rows if pid == worker.pid) for worker in both)
    shared = [row for row in rows if row[0] > first + SLICE_NS and row[1] < last]
    assert len(shared) > 10
    turns, held, holder = [], 0, 0
    for start, end, pid, _ in shared:
        if pid != holder and holder:
            turns.append(held)
            held = 0
        holder, held = pid, held + end - start
    assert set(turns[1:]) == {SLICE_NS}


def test_a_switch_between_contexts_takes_the_time_that_the_machine_says(
    start_worker: StartWorker, tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    both = [start_worker(ORION_SIM_TRACE=str(trace), ORION_SIM_SWITCH_US="150") for _ in range(2)]
    for worker in both:
        worker.do("launch 10 7000 132")
    for worker in both:
        worker.do("sync")
        worker.begin("exit")
        worker.process.wait(timeout=20)
    gaps = {"same": set[int](), "other": set[int]()}
    for (_, end, one, _), (start, _, other, _) in pairwise(pieces(trace)):
        gaps["same" if one == other else "other"].add(start - end)
    assert gaps == {"same": {0}, "other": {150_000}}


def test_a_process_blocked_in_a_graph_costs_another_no_time_and_may_be_killed(
    start_worker: StartWorker, tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    blocked, beside = start_worker(), start_worker(ORION_SIM_TRACE=str(trace))
    free = int(beside.do("free"))
    blocked.do("alloc 1000000000")
    blocked.do("launch 1 10 132")  # the first launch of a kernel would wait for the word, too
    blocked.do("sync")
    blocked.do("wait")
    blocked.do("launch 50 7000 132")
    for _ in range(2):
        beside.do("launch 10 7000 132")
        beside.do("sync")
        blocked.process.kill()
        blocked.process.wait(timeout=20)
    assert int(beside.do("free")) == free
    beside.begin("exit")
    beside.process.wait(timeout=20)
    whole = [end - start for start, end, *_ in pieces(trace)]
    assert whole.count(7_000_000) >= 19  # only the graph's own first kernel may have been cut in


def test_under_mps_contexts_run_together(start_worker: StartWorker, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    both = [start_worker(ORION_SIM_MODE="mps", ORION_SIM_TRACE=str(trace)) for _ in range(2)]
    for worker in both:
        worker.do("launch 4 50000 66")
    for worker in both:
        worker.do("sync")
        worker.begin("exit")
        worker.process.wait(timeout=20)
    rows = pieces(trace)
    assert [end - start for start, end, *_ in rows] == [50_000_000] * 8
    assert any(start < end and pid != other for (_, end, pid, _), (start, _, other, _) in pairwise(rows))


def test_under_mps_partitions_of_two_processes_run_together(start_worker: StartWorker, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    both = [start_worker(ORION_SIM_MODE="mps", ORION_SIM_TRACE=str(trace)) for _ in range(2)]
    for group, worker in enumerate(both):
        worker.do(f"green 64 {group}")
        worker.do("launch 4 50000 132")
    for worker in both:
        worker.do("sync")
        worker.begin("exit")
        worker.process.wait(timeout=20)
    rows = pieces(trace)
    on_half = -(-50_000_000 * 132 // 64)
    assert [end - start for start, end, *_ in rows] == [on_half] * 8
    first, last = (
        choose(time for start, end, pid, _ in rows if pid == worker.pid for time in (start, end))
        for choose, worker in ((min, both[1]), (max, both[0]))
    )
    assert last - first > 2 * on_half  # the kernels of each pair ran at the same time


def test_under_mps_a_long_kernel_on_a_partition_stops_no_other_process(start_worker: StartWorker) -> None:
    long, short = (start_worker(ORION_SIM_MODE="mps") for _ in range(2))
    long.do("green 64 0")
    long.do("launch 1 4000000 132")
    short.do("launch 1 1000 132")
    assert float(short.do("sync")) < 1
    long.process.send_signal(signal.SIGKILL)
    long.process.wait(timeout=20)
    short.do("launch 1 300000 132")
    assert float(short.do("sync")) < 0.5  # the kernel ran on all SMs; on the other 68 it would take 0.58 s


def test_a_time_sliced_partition_keeps_its_size(start_worker: StartWorker, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    green, plain = (start_worker(ORION_SIM_TRACE=str(trace)) for _ in range(2))
    green.do("green 66 0")
    green.do("launch 1 20000 132")
    plain.do("launch 3 7000 132")
    for worker in (green, plain):
        worker.do("sync")
        worker.begin("exit")
        worker.process.wait(timeout=20)
    rows = pieces(trace)
    assert all(end <= start for (_, end, *_), (start, *_) in pairwise(rows))  # never together
    ran = sum(end - start for start, end, pid, _ in rows if pid == green.pid)
    assert abs(ran - 20_000_000 * 132 // 72) < 1000  # 66 SMs become 72, a multiple of 8; each interruption rounds up


def test_the_gpu_and_the_memory_of_a_killed_client_are_free_again(start_worker: StartWorker) -> None:
    dead, alive = start_worker(), start_worker()
    everything = int(alive.do("free"))
    dead.do("alloc 1000000000")
    dead.do("launch 500 1000000 132")
    assert int(alive.do("free")) <= everything - 1_000_000_000
    dead.process.send_signal(signal.SIGKILL)
    dead.process.wait(timeout=20)
    alive.do("launch 1 1000 132")
    assert float(alive.do("sync")) < 0.1
    assert int(alive.do("free")) == everything


def test_a_client_without_descriptors_recovers_from_a_killed_one(
    start_worker: StartWorker, machine: dict[str, str]
) -> None:
    alive = start_worker()
    alive.do("close")
    for point in (30, 60, 90):
        subprocess.run(
            [sys.executable, str(HERE / "worker.py")],
            input="launch 9 10 1\nsync\nexit\n",
            text=True,
            stdout=subprocess.DEVNULL,
            env={**machine, "ORION_SIM_CRASH_AT": str(point)},
            check=False,
        )
        alive.do("launch 1 100 1")
        assert float(alive.do("sync")) < 1


def test_a_stopped_client_stops_no_other_client(start_worker: StartWorker) -> None:
    stopped, alive = start_worker(), start_worker()
    stopped.begin("busy 1.5 20 1")
    end = time.monotonic() + 1
    rounds = 0
    while time.monotonic() < end:
        stopped.process.send_signal(signal.SIGSTOP)
        alive.do("launch 2 50 132")
        assert float(alive.do("sync")) < 0.3
        stopped.process.send_signal(signal.SIGCONT)
        rounds += 1
    assert rounds > 10
    assert int(stopped.answer()) > 10


def test_waiting_is_precise_and_cheap(start_worker: StartWorker) -> None:
    worker = start_worker()
    late = []
    for _ in range(100):
        worker.do("launch 1 3000 132")
        late.append(float(worker.do("sync")) - 0.003)
    assert sorted(late)[50] < 0.0005
    before = os.times().children_user
    worker.do("launch 1 1000000 132")
    worker.do("sync")
    assert cpu_seconds(worker.pid) - before < 1


def test_the_first_process_sets_the_memory_size_and_replaces_another_layout(
    start_worker: StartWorker, machine: dict[str, str]
) -> None:
    state = Path(machine["ORION_SIM_STATE"]) / "machine"
    state.write_bytes(b"another layout" + bytes(8192))
    first = start_worker(ORION_SIM_MEMORY="3GiB")
    second = start_worker(ORION_SIM_MEMORY="9GiB")
    assert int(first.do("free")) == int(second.do("free")) == 3 << 30


def test_each_context_takes_memory_for_itself_until_it_ends(start_worker: StartWorker) -> None:
    sizes = {"ORION_SIM_MEMORY": "3GiB", "ORION_SIM_CONTEXT_MEMORY": "1GiB"}
    first = start_worker(**sizes)
    assert int(first.do("free")) == 2 << 30
    second = start_worker(**sizes)
    assert int(first.do("free")) == 1 << 30
    second.process.kill()
    second.process.wait(timeout=20)
    eventually(lambda: int(first.do("free")) == 2 << 30, "the context of the dead process has ended")


OBSERVE = """
import ctypes
sim = ctypes.CDLL("libcuda.so.1")
sim.orion_sim_gpu_name.restype = ctypes.c_char_p
assert ctypes.c_char.in_dll(sim, "orion_sim_driver")
uuid, total, used = ctypes.create_string_buffer(41), ctypes.c_uint64(), ctypes.c_uint64()
for gpu in range(sim.orion_sim_gpu_count()):
    assert sim.orion_sim_gpu_uuid(gpu, uuid) == 0
    assert sim.orion_sim_gpu_memory(gpu, ctypes.byref(total), ctypes.byref(used)) == 0
    pids = (ctypes.c_uint32 * 8)()
    count = sim.orion_sim_gpu_processes(gpu, pids, None, 8)
    name = sim.orion_sim_gpu_name(gpu).decode().replace(" ", "_")
    print(uuid.value.decode(), name, total.value, used.value, *pids[:count])
assert sim.orion_sim_gpu_uuid(99, uuid) == -1
"""


def observe(environment: dict[str, str]) -> list[list[str]]:
    done = subprocess.run([sys.executable, "-c", OBSERVE], env=environment, capture_output=True, text=True, check=True)
    return [line.split() for line in done.stdout.splitlines()]


def test_gpus_are_visible_without_cuda(start_worker: StartWorker, machine: dict[str, str]) -> None:
    gpus = observe({**machine, "ORION_SIM_GPUS": "2", "ORION_SIM_MEMORY": "4GiB"})
    assert [row[1:] for row in gpus] == [["Orion_Simulated_GPU", str(4 << 30), "0"]] * 2
    assert gpus[0][0].startswith("GPU-")
    assert gpus[0][0] != gpus[1][0]
    worker = start_worker()
    worker.do("alloc 2097152")
    seen = observe(machine)
    assert [row[0] for row in seen] == [row[0] for row in gpus]
    assert seen[0][3:] == ["2097152", str(worker.pid)]
    assert ctypes.sizeof(ctypes.c_uint64) == 8


def test_a_process_is_identified_again_after_it_closed_every_descriptor(
    start_worker: StartWorker, machine: dict[str, str]
) -> None:
    worker = start_worker()
    assert observe(machine)[0][4:] == [str(worker.pid)]
    worker.do("close")
    end = time.monotonic() + 20
    while observe(machine)[0][4:] != [str(worker.pid)]:  # meanwhile the process is listed with process ID 0
        assert observe(machine)[0][4:] in (["0"], [str(worker.pid)])
        assert time.monotonic() < end


def test_the_machine_survives_a_clients_death_at_any_point(c_build: Path) -> None:
    done = subprocess.run([c_build / "test" / "test_sim_crash"], capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
