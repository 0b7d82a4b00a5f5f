"""Parsing callgrind's profiles."""

from pathlib import Path

from measurements.overhead.graph_instructions import hook_costs
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


def test_what_the_hook_calls_counts_for_it_except_the_driver() -> None:
    in_libc = "ob=/build/liborion_hook.so\nfn=keep\n20 40\ncfn=malloc\ncob=/usr/lib/libc.so.6\ncalls=2 1\n21 70\n"
    in_hook = "cfn=keep\ncalls=1 3\n22 110\n"
    instructions, calls = hook_costs(
        PROFILE.replace("calls=10 3", "cfn=cuGraphLaunch\ncob=/build/libcuda.so.1\ncalls=10 3")
    )
    assert (instructions, calls) == (300, {"cuGraphLaunch": 10})
    assert hook_costs(in_libc + in_hook) == (110, {})


def test_only_one_function_is_counted(tmp_path: Path) -> None:
    words = callgrind_command(tmp_path / "out", "measured_launch")
    assert words[0] == "valgrind"
    assert "--toggle-collect=measured_launch" in words
