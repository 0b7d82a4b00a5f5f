"""Parsing callgrind's profiles."""

from pathlib import Path

from measurements.overhead.hook_cost import callgrind_command, instructions_by_object

PROFILE = """\
# callgrind format
version: 1
positions: line
events: Ir
ob=/build/client
fl=client.c
fn=measured_launch
12 40
cfn=cuLaunchKernel
cob=/build/liborion_hook.so
calls=10 7
13 900
14 5
ob=/build/liborion_hook.so
fn=cuLaunchKernel
7 300
calls=10 3
8 600
ob=/build/libcuda.so.1
fn=cuLaunchKernel
3 600
totals: 945
"""


def test_the_cost_of_a_callee_counts_once_for_its_own_object() -> None:
    assert instructions_by_object(PROFILE) == {
        "/build/client": 45, "/build/liborion_hook.so": 300, "/build/libcuda.so.1": 600,
    }  # fmt: skip


def test_only_one_function_is_counted(tmp_path: Path) -> None:
    words = callgrind_command(tmp_path / "out", "measured_launch")
    assert words[0] == "valgrind"
    assert "--toggle-collect=measured_launch" in words
