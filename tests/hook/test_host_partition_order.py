"""Random programs: the hook keeps the order that CUDA promises, wherever and whenever it runs kernels.

When the hook lets a be process run on a partition of the SMs, it launches the kernels on another stream than the
program named. Every program also runs without the hook, which shows that the simulated GPU itself keeps the order.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from tests.hook.harness import Machine, record_word
from tests.hook.ordered_program import Operation, Program, Runner, Seen, check, fresh_folder, programs

EXAMPLES = 60
KERNEL_US = (5, 400)


def keeps_order(runner: Runner, kernel_us: tuple[int, int] = KERNEL_US, moved: bool = False) -> None:
    """Run random programs, and check each of them."""

    @settings(
        max_examples=EXAMPLES, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(programs(kernel_us, moved))
    def one(program: Program) -> None:
        check(program, runner.run(program))

    one()


@contextmanager
def plain(build: Path, folder: Path, mode: str) -> Iterator[Runner]:
    """A client on a separate machine, without the hook."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ORION_")}
    with tempfile.TemporaryDirectory(prefix="orion-", dir="/tmp") as state:
        environment |= {"ORION_SIM_STATE": state, "ORION_SIM_MODE": mode, "LD_LIBRARY_PATH": str(build / "sim")}
        with Runner(build / "test" / "client_ordered", environment, fresh_folder(folder)) as runner:
            yield runner


@contextmanager
def hooked(machine: Machine, folder: Path, slot: str) -> Iterator[Runner]:
    """A client in a slot of the machine."""
    environment = machine.client_environment(machine.client_root(slot))
    with Runner(machine.build / "test" / "client_ordered", environment, fresh_folder(folder)) as runner:
        yield runner


@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("mode", ["timeslice", "mps"])
def test_the_simulated_gpu_keeps_the_order(c_build: Path, tmp_path: Path, mode: str, moved: bool) -> None:
    with plain(c_build, tmp_path, mode) as runner:
        keeps_order(runner, moved=moved)


@pytest.mark.parametrize("slot", ["hp-0", "be-0"])
@pytest.mark.parametrize("policy", ["none", "gate"])
def test_under_the_hook_the_order_is_kept(machine: Machine, tmp_path: Path, slot: str, policy: str) -> None:
    machine.agent.set_policy(machine.uuids[0], policy=policy)
    with hooked(machine, tmp_path, slot) as runner:
        keeps_order(runner)
        assert runner.client.said == []


def test_the_order_is_kept_beside_a_busy_hp(machine: Machine, tmp_path: Path) -> None:
    hp = machine.start("hp-0")
    with hooked(machine, tmp_path, "be-0") as runner:
        hp.send("serve 100000 500 20000 1")
        keeps_order(runner)


def test_the_order_is_kept_where_kernels_are_moved_to_a_partition(bare_machine: Machine, tmp_path: Path) -> None:
    # A kernel known to be long leaves SMs to hp even while hp is idle; beside a busy hp all launches are moved.
    bare_machine.run_contexts_together()
    bare_machine.start_agent()
    bare_machine.agent.set_policy(bare_machine.uuids[0], policy="orion", max_slowdown=100, long_kernel_us=1000)
    hp = bare_machine.start("hp-0")
    with hooked(bare_machine, tmp_path, "be-0") as runner:
        keeps_order(runner, kernel_us=(2000, 6000))  # the same programs twice: the second time their kernels are known
        while_idle = record_word(runner.client, "partitioned_launches")
        hp.send("serve 100000 4000 8000 1")
        keeps_order(runner, kernel_us=(2000, 6000))
        beside = record_word(runner.client, "overlapped_launches")
        assert while_idle > 5
        assert beside > 5
        assert record_word(runner.client, "partitioned_launches") > while_idle
        assert runner.client.said == []


def launch(stream: int) -> Operation:
    return Operation("launch", (stream, 100, 1))


@pytest.mark.parametrize(
    "program",
    [
        pytest.param([launch(1), launch(1)], id="stream"),
        pytest.param([launch(0), launch(4)], id="legacy"),
        pytest.param([launch(3), Operation("copy", (3, 64)), Operation("host", (0,))], id="copy"),
        pytest.param(
            [launch(2), Operation("record", (2, 1)), Operation("wait", (1, 1)), Operation("graph", (1, 100, 1))],
            id="event",
        ),
        pytest.param([launch(1), Operation("sync", (1,))], id="synchronise"),
    ],
)
def test_a_broken_order_is_noticed(program: Program) -> None:
    first, last = Seen(1_000_000, 2_000_000), len(program) - 1
    check(program, {0: first, last: Seen(2_100_000, 2_200_000)})
    with pytest.raises(AssertionError, match=f"operation {last} .* early"):
        check(program, {0: first, last: Seen(1_900_000, 1_990_000)})
