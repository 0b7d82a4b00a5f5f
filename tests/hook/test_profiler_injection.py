"""The profiler's library in a real process, with a fake CUPTI (hook/test/fake_cupti.c) that the tests control."""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import eventually

DEADLINE = 20.0
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(c_build: Path, tmp_path: Path) -> Iterator[Start]:
    """Starts client_profiled under the profiler, with a pipe as its standard input."""
    started: list[subprocess.Popen[str]] = []

    def begin(**more: str) -> subprocess.Popen[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("ORION_", "CUDA_"))}
        environment |= {
            "ORION_SIM_STATE": str(tmp_path / "sim"),
            "ORION_PROFILE_DIRECTORY": str(tmp_path),
            "CUDA_INJECTION64_PATH": str(c_build / "liborion_profiler.so"),
            "LD_LIBRARY_PATH": f"{c_build / 'sim'}:{c_build / 'test' / 'fake_cupti'}",
        } | more
        process = subprocess.Popen(
            [str(c_build / "test" / "client_profiled")],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def run(process: subprocess.Popen[str], *commands: str) -> str:
    """Execute all commands, end the program, and return its standard error."""
    _, said = process.communicate("\n".join([*commands, ""]), timeout=DEADLINE)
    return said


def records(folder: Path, kind: str) -> list[dict[str, Any]]:
    lines = [line for path in sorted(folder.glob("process-*.jsonl")) for line in path.read_text().splitlines()]
    return [record for record in map(json.loads, lines) if record["record"] == kind]


def kernels(folder: Path) -> dict[str, dict[str, Any]]:
    return {record["name"]: record for record in records(folder, "kernel")}


def test_name_grid_block_and_dynamic_shared_memory_distinguish_kernels(start: Start, tmp_path: Path) -> None:
    shapes = ["a 4 1 1 256 1 1 64 0", "b 4 1 1 256 1 1 64 0", "a 8 1 1 256 1 1 64 0", "a 4 1 1 128 2 1 64 0"]
    shapes += ["a 4 1 1 256 1 1 64 512"]
    process = start()
    assert run(process, *(f"kernel {shape} 40 5000 3" for shape in shapes), "exit 7") == ""
    assert process.returncode == 7
    found = records(tmp_path, "kernel")
    assert len(found) == len(shapes)
    assert {record["launches"] for record in found} == {3}
    assert {record["registers"] for record in found} == {40}
    assert {record["static_shared"] for record in found} == {64}
    assert [record["dynamic_shared"] for record in found] == [0, 0, 0, 0, 512]
    assert [record["block"] for record in found][3] == [128, 2, 1]


def test_durations_are_summed_exactly_and_kept_in_narrow_buckets(start: Start, tmp_path: Path) -> None:
    durations = [100, 255, 300, 5000, 123456, 9_999_999, 7_000_000_000, 90_000_000_000]
    run(start(), *(f"kernel k 1 1 1 32 1 1 0 0 16 {duration}" for duration in durations))
    (kernel,) = records(tmp_path, "kernel")
    assert kernel["total_ns"] == sum(durations)
    assert (kernel["shortest_ns"], kernel["longest_ns"]) == (100, 90_000_000_000)
    assert sum(count for _, _, count in kernel["histogram"]) == kernel["timed"] == len(durations)
    for duration in (300, 5000, 123456, 9_999_999, 7_000_000_000):
        (bucket,) = [(begin, end) for begin, end, _ in kernel["histogram"] if begin <= duration < end]
        assert bucket[1] - bucket[0] <= max(8, bucket[0] * 0.032)


@pytest.mark.parametrize("record_bytes", [144, 208, 216, 248])
def test_records_of_every_cuda_version_are_read(start: Start, tmp_path: Path, record_bytes: int) -> None:
    run(start(FAKE_CUPTI_RECORD_BYTES=str(record_bytes)), "kernel k 3 5 7 32 2 2 0 0 99 4000 5000")
    assert kernels(tmp_path)["k"]["launches"] == 5000
    assert kernels(tmp_path)["k"]["grid"] == [3, 5, 7]


def test_the_limits_of_the_device_come_from_the_driver(start: Start, tmp_path: Path) -> None:
    run(start(), "kernel k 1 1 1 32 1 1 0 0 16 1000")
    (device,) = records(tmp_path, "device")
    assert device["sms"] == 132
    assert (device["threads_per_sm"], device["reserved_shared_per_block"], device["warp"]) == (2048, 1024, 32)


def test_a_device_that_the_driver_does_not_know_has_no_limits(start: Start, tmp_path: Path) -> None:
    run(start(), "kernel k 1 1 1 32 1 1 0 0 16 1000 1 9", "kernel l 1 1 1 32 1 1 0 0 16 1000 1 99")
    assert records(tmp_path, "device") == []
    assert len(records(tmp_path, "kernel")) == 2


def test_a_killed_program_leaves_a_file_with_its_earlier_kernels(start: Start, tmp_path: Path) -> None:
    process = start()
    assert process.stdin is not None
    process.stdin.write("kernel early 1 1 1 32 1 1 0 0 16 1000 10\n")
    process.stdin.flush()
    eventually(lambda: kernels(tmp_path).get("early", {}).get("launches") == 10, "a file while the program runs")
    process.send_signal(signal.SIGKILL)
    process.wait(DEADLINE)
    (line,) = records(tmp_path, "process")
    assert line["ended"] is False
    assert line["pid"] == process.pid


def test_a_program_that_ends_without_exit_handlers_leaves_its_file(start: Start, tmp_path: Path) -> None:
    process = start()
    assert process.stdin is not None
    process.stdin.write("kernel early 1 1 1 32 1 1 0 0 16 1000 10\n")
    process.stdin.flush()
    eventually(lambda: "early" in kernels(tmp_path), "a file while the program runs")
    run(process, "_exit 4")
    assert process.returncode == 4
    assert kernels(tmp_path)["early"]["launches"] == 10


def test_unfinished_work_counts_without_a_duration(start: Start, tmp_path: Path) -> None:
    run(start(), "kernel k 1 1 1 32 1 1 0 0 16 1000 10", "running x", "exit 0")
    assert (kernels(tmp_path)["running"]["launches"], kernels(tmp_path)["running"]["timed"]) == (1, 0)
    assert kernels(tmp_path)["k"]["timed"] == 10


def test_each_spawned_child_has_its_own_file_and_a_forked_child_has_none(start: Start, tmp_path: Path) -> None:
    run(start(), "kernel parent_kernel 1 1 1 32 1 1 0 0 16 1000", "spawn", "fork", "exit 0")
    assert len(list(tmp_path.glob("process-*.jsonl"))) == 2
    assert {name: record["launches"] for name, record in kernels(tmp_path).items()} == {
        "parent_kernel": 1,
        "child_kernel": 1,
    }
    assert all(line["ended"] for line in records(tmp_path, "process"))


def test_a_conflict_with_another_profiler_is_reported_once_and_the_program_runs(start: Start, tmp_path: Path) -> None:
    process = start(FAKE_CUPTI_SUBSCRIBE="39")
    said = run(process, "kernel k 1 1 1 32 1 1 0 0 16 1000", "exit 5")
    assert process.returncode == 5
    assert said.count("\n") == 1
    assert "another profiler" in said
    assert "another profiler" in records(tmp_path, "process")[0]["failure"]


def test_the_error_of_a_failing_cupti_is_reported(start: Start) -> None:
    process = start(FAKE_CUPTI_SUBSCRIBE="35")
    assert "CUPTI_ERROR_FAKE (35)" in run(process, "exit 0")
    assert process.returncode == 0


def test_the_error_without_cupti_names_the_package_to_install(start: Start, c_build: Path, tmp_path: Path) -> None:
    process = start(LD_LIBRARY_PATH=str(c_build / "sim"))
    said = run(process, "exit 0")
    if "libcupti.so.13 or .12 not found" not in said:
        pytest.fail(f"this machine has a real CUPTI, or the sentence is wrong: {said}")
    assert "nvidia-cuda-cupti" in said
    assert process.returncode == 0


def test_candidates_are_tried_in_order_and_bad_ones_skipped(start: Start, c_build: Path, tmp_path: Path) -> None:
    fake = c_build / "test" / "fake_cupti" / "libcupti.so.13"
    candidates = f"{tmp_path}/nothing::{fake}"
    process = start(LD_LIBRARY_PATH=str(c_build / "sim"), ORION_PROFILE_CUPTI=candidates)
    run(process, "kernel k 1 1 1 32 1 1 0 0 16 1000")
    assert "k" in kernels(tmp_path)


def test_without_a_folder_nothing_happens(start: Start, tmp_path: Path) -> None:
    assert (
        run(start(ORION_PROFILE_DIRECTORY=str(tmp_path / "nowhere")), "kernel k 1 1 1 32 1 1 0 0 16 1 1", "fork") == ""
    )
    assert records(tmp_path, "kernel") == []


def test_records_that_cupti_dropped_are_counted(start: Start, tmp_path: Path) -> None:
    run(start(), "kernel k 1 1 1 32 1 1 0 0 16 1000", "drop 17", "kernel k 1 1 1 32 1 1 0 0 16 1000", "exit 0")
    assert records(tmp_path, "process")[0]["dropped"] == 17


def test_kernels_beyond_the_limit_are_counted_together(start: Start, tmp_path: Path) -> None:
    run(start(), *(f"kernel k {grid} 1 1 32 1 1 0 0 16 1000 2" for grid in range(1, 4102)), "exit 0")
    assert len(records(tmp_path, "kernel")) == 4096
    (line,) = records(tmp_path, "process")
    assert (line["unplaced"], line["unplaced_ns"], line["records"]) == (10, 10_000, 8202)


def test_names_of_any_bytes_are_json(start: Start, tmp_path: Path) -> None:
    name = 'we"ird\\\x01\tname'.replace("\t", "")
    run(start(), f"kernel {name} 1 1 1 32 1 1 0 0 16 1000")
    assert list(kernels(tmp_path)) == [name]


def test_launches_are_written_down_one_by_one_up_to_a_bound(start: Start, tmp_path: Path) -> None:
    process = start(ORION_PROFILE_LAUNCHES="5000")
    run(process, "kernel a 1 1 1 32 1 1 0 0 16 1000 4000", "kernel b 1 1 1 32 1 1 0 0 16 2000 4000", "exit 0")
    (path,) = tmp_path.glob("launches-*.csv")
    rows = [tuple(map(int, line.split(","))) for line in path.read_text().splitlines()]
    assert len(rows) == 5000
    assert {(row[2], row[3]) for row in rows} == {(1000, 0), (2000, 1)}
    assert [row[0] for row in rows] == list(range(1, 5001))
