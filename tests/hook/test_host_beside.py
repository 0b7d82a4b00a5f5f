"""be beside hp where contexts run together: which launches the hook may move, and what changes for waiting launches."""

import pytest

from tests.hook.harness import Machine, record_word
from tests.hook.scripted_client import Client

pytestmark = pytest.mark.quiet


@pytest.fixture
def shared(bare_machine: Machine) -> Machine:
    """A machine whose contexts run together."""
    bare_machine.run_contexts_together()
    bare_machine.start_agent()
    return bare_machine


def moves(be: Client, command: str) -> bool:
    """Return whether the command's launches were moved to a partition."""
    before = record_word(be, "partitioned_launches")
    be.must(command)
    be.must("sync 1")
    return record_word(be, "partitioned_launches") > before


@pytest.mark.parametrize("by_attribute", [0, 1])
def test_cooperative_launches_keep_all_sms(shared: Machine, by_attribute: int) -> None:
    shared.agent.set_policy(shared.uuids[0], policy="orion", max_slowdown=100, long_kernel_us=1000)
    shared.start("hp-0")
    be = shared.start("be-0")
    be.must("run 4 2000 1")
    assert moves(be, "run 2 2000 1")
    assert not moves(be, f"cooperate 2 2000 1 {by_attribute}")  # its blocks may need more SMs than the partition has


@pytest.mark.parametrize(
    ("launch", "blocks"), [("meet", 264), ("meet", 200), ("meet", 20), ("meetclusters", 264), ("meetgraph", 264)]
)
def test_a_grid_that_fits_on_the_gpu_at_once_is_not_moved(shared: Machine, launch: str, blocks: int) -> None:
    """Its blocks may wait for each other, and on half of the SMs some of them would never start."""
    shared.agent.set_policy(shared.uuids[0], policy="orion", max_slowdown=100, long_kernel_us=1000)
    shared.start("hp-0")
    be = shared.start("be-0")
    for _ in range(4):
        be.must(f"{launch} 1 2000 1 {blocks}")
        be.must("sync 1")
    assert not moves(be, f"{launch} 2 2000 1 {blocks}")
    assert be.said == []


@pytest.mark.parametrize(("like", "moved"), [(7, False), (8, True)])
def test_only_a_grid_of_more_than_one_wave_is_moved(shared: Machine, like: int, moved: bool) -> None:
    """The GPU runs eight of these blocks on each of its 132 SMs; the grid has 132 times (like + 1) blocks."""
    shared.agent.set_policy(shared.uuids[0], policy="orion", max_slowdown=100, long_kernel_us=1000)
    shared.start("hp-0")
    be = shared.start("be-0")
    for _ in range(4):
        be.must(f"run 1 2000 1 {like}")
    assert moves(be, f"run 2 2000 1 {like}") == moved


def test_moved_launches_survive_a_context_that_others_retain(shared: Machine) -> None:
    shared.agent.set_policy(shared.uuids[0], policy="orion", max_slowdown=100, long_kernel_us=100)
    shared.start("hp-0")
    be = shared.start("be-0")
    be.must("run 4 200 1")
    assert be.do("retain 2 200").result > 100
    assert be.said == []


def test_work_behind_the_valve_runs_when_a_budget_is_granted(shared: Machine) -> None:
    shared.agent.set_policy(shared.uuids[0], policy="orion", max_slowdown=1)
    hp, be = shared.start("hp-0"), shared.start("be-0")
    be.must("run 10 100 1")
    hp.send("flood 8 1000")  # never idle
    shared.until(hp, "busy")
    be.send("run 1 100 1")
    shared.until(be, "gated")
    assert not be.heard_something(0.3)
    shared.agent.set_policy(shared.uuids[0], max_slowdown=50)
    ran, flooded = be.answer(), hp.answer()
    assert ran.result == 0
    assert ran.ended < flooded.ended


@pytest.mark.parametrize(
    "command",
    [
        "context 20000",  # green contexts exist only in the primary context
        "meet 1 20000 1 264",  # its blocks may wait for each other
    ],
)
def test_a_long_kernel_that_cannot_be_moved_waits_for_hp(shared: Machine, command: str) -> None:
    """Such a kernel would hold all SMs for longer than the window. hp's owner granted be only a part of the SMs."""
    shared.agent.set_policy(shared.uuids[0], policy="orion", max_slowdown=1)
    hp, be = shared.start("hp-0"), shared.start("be-0")
    be.must("run 10 20000 1")
    be.must("meet 8 20000 1 264")
    be.must("sync 1")
    shared.agent.set_policy(shared.uuids[0], max_slowdown=100)
    hp.send("flood 12 1000")  # hp is never idle, so overlap starts while hp works
    shared.until(hp, "busy")
    assert moves(be, "run 1 20000 1")
    stayed = be.must(command)
    flooded = hp.answer()
    assert stayed.ended > flooded.ended
