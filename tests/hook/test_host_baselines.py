"""The published schedulers that benchmarks compare with, in real processes, where contexts run together."""

from pathlib import Path

import pytest

from orion.hook import identity
from orion.hook.policy_table import BASELINES
from orion.node_agent.api import agent_pb2
from tests.hook.harness import Machine, record_word
from tests.hook.scripted_client import MILLISECOND, Answer, Client, eventually, warm

pytestmark = pytest.mark.quiet

LONG = 200
""" Milliseconds of hp's kernel. Launches that need not wait for hp end long before this kernel. """


@pytest.fixture
def shared(bare_machine: Machine) -> Machine:
    """A machine whose GPU runs contexts together, as under MPS."""
    bare_machine.run_contexts_together()
    bare_machine.know_baselines()
    bare_machine.start_agent()
    return bare_machine


def under(machine: Machine, policy: str, **parameters: int) -> tuple[Client, Client]:
    """Start an hp and a be client that know each other and their profiles; then set the policy."""
    hp, be = machine.start("hp-0"), machine.start("be-0")
    if any(slot.name == "hp-0" and slot.profile_kernels for slot in machine.gpu().slots):
        eventually(lambda: record_word(hp, "kernels_known"), "hp knows its profile")
    warm(be, 10, 5)
    machine.until_known(hp, be)
    machine.agent.set_policy(machine.uuids[0], policy=policy, **parameters)
    return hp, be


def ends_before(answer: Answer, launched: Answer) -> bool:
    """Whether the launch ended before hp's long kernel."""
    return answer.ended < launched.began + LONG * MILLISECOND


def waits(be: Client, hp: Client, launched: Answer, command: str = "run 1 10 1") -> bool:
    """Whether be's next launch waits for hp's long kernel. hp also waits for this kernel."""
    be.send(command)
    hp.must("sync 1")
    return not ends_before(be.answer(), launched)


# -- reef --------------------------------------------------------------------------------------------------------------


def profile(
    machine: Machine, slot: str, kernels: dict[int, int], kernel_class: "agent_pb2.KernelClass" = agent_pb2.UNKNOWN
) -> None:
    """Give a slot a profile with these durations in us. Each key is the duration whose grid the kernel has."""
    rows = [
        agent_pb2.ProfileRow(
            identity=identity.kernel_identity(b"timed", (132, 1 + looks, 1), (256, 1, 1), 0),
            duration_ns=microseconds * 1000,
            kernel_class=kernel_class,
        )
        for looks, microseconds in kernels.items()
    ]
    machine.agent.set_profile(machine.uuids[0], slot, rows)


def test_reef_lets_one_shorter_launch_follow_each_of_hp(shared: Machine) -> None:
    profile(shared, "hp-0", {100: 100})
    hp, be = under(shared, "reef")
    for _ in range(3):
        first = hp.must(f"launch 1 {LONG * 1000} 1 100")  # has the grid of a kernel of 100 us
        assert ends_before(be.must("launch 1 10 2"), first)
        assert ends_before(be.must("sync 2"), first)
        second = hp.must("launch 1 10 2 100")
        assert ends_before(be.must("run 1 10 2"), first)
        assert second.ended < first.began + LONG * MILLISECOND
        assert waits(be, hp, first)
        hp.must("sync 2")
        shared.until(hp, "idle")


def test_reef_holds_what_is_longer_than_hps_launch(shared: Machine) -> None:
    profile(shared, "hp-0", {100: 100})
    hp, be = under(shared, "reef")
    warm(be, 1000, 4)
    launched = hp.must(f"launch 1 {LONG * 1000} 1 100")
    assert waits(be, hp, launched, "run 1 1000 1")
    launched = hp.must(f"launch 1 {LONG * 1000} 1 100")
    assert not waits(be, hp, launched)


def test_reef_pairs_no_launch_with_an_hp_without_a_profile(shared: Machine) -> None:
    hp, be = under(shared, "reef")
    launched = hp.must(f"launch 1 {LONG * 1000} 1")
    assert waits(be, hp, launched)


def test_reef_queues_no_deeper_than_it_may(shared: Machine) -> None:
    _, be = under(shared, "reef", reef_depth=4)
    be.must("run 4 10 1")  # the first burst, which may have fewer launches
    filled = be.must("launch 4 80000 1")
    assert filled.seconds < 0.3
    more = be.must("launch 1 10 2")
    assert more.ended >= filled.began + 320 * MILLISECOND


# -- ticktock ----------------------------------------------------------------------------------------------------------


def test_ticktock_gives_be_one_iteration_for_each_of_hp(shared: Machine) -> None:
    hp, be = under(shared, "ticktock")
    be.must("run 1 10 1")
    for _ in range(3):
        launched = hp.must(f"launch 1 {LONG * 1000} 1")
        hp.must("run 1 10 2")  # ends an iteration while hp is still busy
        assert ends_before(be.must("launch 2 10 1"), launched)
        assert ends_before(be.must("launch 1 10 2"), launched)  # belongs to the same iteration
        assert ends_before(be.must("sync 1"), launched)
        assert waits(be, hp, launched)
        shared.until(hp, "idle")


def test_ticktock_lets_be_run_freely_beside_an_idle_hp(shared: Machine) -> None:
    _, be = under(shared, "ticktock")
    for _ in range(20):
        assert be.must("run 2 10 1").seconds < 0.5
    shown = shared.shown(be)
    assert shown is not None
    assert shown.overlapped_launches == 0


def test_ticktock_takes_a_turn_that_hp_never_gives(shared: Machine) -> None:
    hp, be = under(shared, "ticktock")
    hp.send("flood 4 100")  # no iteration ends
    shared.until(hp, "busy")
    be.must("run 1 10 1")
    held = be.must("run 1 10 1")
    assert not hp.heard_something(0)
    assert 0.5 < held.seconds < 3
    hp.answer()


# -- orion-2024 --------------------------------------------------------------------------------------------------------


def test_orion_2024_lets_kernels_of_another_class_or_unknown_go(shared: Machine) -> None:
    hp, be = under(shared, "orion-2024")
    launched = hp.must(f"launch 1 {LONG * 1000} 1")
    for _ in range(5):
        assert ends_before(be.must("run 1 10 1"), launched)
    hp.must("sync 1")
    shown = shared.shown(be)
    assert shown is not None
    assert shown.overlapped_launches == 5


@pytest.mark.parametrize(
    ("hp_class", "be_class", "goes"),
    [
        (agent_pb2.MEMORY, agent_pb2.COMPUTE, True),
        (agent_pb2.MEMORY, agent_pb2.MEMORY, False),
        (agent_pb2.COMPUTE, agent_pb2.COMPUTE, False),
        (agent_pb2.UNKNOWN, agent_pb2.MEMORY, True),
    ],
)
def test_orion_2024_pairs_kernels_that_are_short_of_different_things(
    shared: Machine, hp_class: "agent_pb2.KernelClass", be_class: "agent_pb2.KernelClass", goes: bool
) -> None:
    profile(shared, "hp-0", {100: 100}, hp_class)
    profile(shared, "be-0", {10: 10}, be_class)
    hp, be = under(shared, "orion-2024")
    launched = hp.must(f"launch 1 {LONG * 1000} 1 100")
    assert waits(be, hp, launched) is not goes


def test_orion_2024_holds_what_needs_more_sms_than_it_may(shared: Machine) -> None:
    hp, be = under(shared, "orion-2024", orion_2024_sms=3)
    launched = hp.must(f"launch 1 {LONG * 1000} 1")
    assert waits(be, hp, launched)
    shared.agent.set_policy(shared.uuids[0], orion_2024_sms=132)
    launched = hp.must(f"launch 1 {LONG * 1000} 1")
    assert ends_before(be.must("run 1 10 1"), launched)
    hp.must("sync 1")


def test_orion_2024_drains_after_so_much_work_though_hp_is_idle(shared: Machine) -> None:
    _, be = under(shared, "orion-2024", orion_2024_duration_us=10_000)
    be.must("run 1 20000 1")  # a kernel that is unknown or too long ends the burst
    filled = be.must("launch 1 300000 1")
    assert filled.seconds < 0.2
    assert be.must("launch 1 10 2").ended >= filled.began + 300 * MILLISECOND


@pytest.mark.parametrize("policy", ["reef", "ticktock", "orion-2024"])
def test_without_hp_nothing_waits(shared: Machine, policy: str) -> None:
    be = shared.start("be-0")
    shared.agent.set_policy(shared.uuids[0], policy=policy, reef_depth=1, orion_2024_duration_us=1)
    be.must("run 1 10 1")
    filled = be.must("launch 20 20000 1")
    assert filled.seconds < 0.3
    be.must("sync 1")


@pytest.mark.parametrize("policy", ["reef", "ticktock", "orion-2024"])
def test_an_hp_that_died_is_not_waited_for(shared: Machine, policy: str) -> None:
    hp, be = under(shared, policy, orion_2024_sms=1)
    be.must("run 1 10 1")
    hp.must("launch 1 5000000 1")
    be.send("run 1 10 1")
    shared.until(be, "gated")
    died = hp.kill()
    assert be.answer().ended < died + 3000 * MILLISECOND


def test_a_launch_that_waits_under_a_baseline_follows_a_change_of_policy(shared: Machine) -> None:
    hp, be = under(shared, "reef")
    launched = hp.must("launch 1 2000000 1")
    for policy in ("gate", "orion-2024", "reef", "none"):
        if policy == "gate":
            be.send("run 1 10 1")
            shared.until(be, "gated")
        shared.agent.set_policy(shared.uuids[0], policy=policy, orion_2024_sms=1)
    assert be.answer().ended < launched.began + 2000 * MILLISECOND
    hp.must("sync 1")


# -- Policies that the library or the agent does not have --------------------------------------------------------------


def refused(machine: Machine, sentence: str) -> None:
    """Start a client and check that the agent refuses it; it continues unmanaged."""
    client = machine.start_in(machine.client_root("be-0"))
    client.must("init 0")
    client.must("run 10 10")
    eventually(lambda: any(sentence in line for line in client.said), "the refusal is said")
    machine.until(client, "")


def test_an_agent_of_the_release_refuses_the_library_of_the_benches(bare_machine: Machine) -> None:
    bare_machine.start_agent()
    bare_machine.know_baselines()
    refused(bare_machine, "liborion_hook_bench.so works only with the agent of `orion bench`")


def test_an_agent_of_the_benches_refuses_the_library_of_the_release(bare_machine: Machine) -> None:
    bare_machine.know_baselines()
    bare_machine.start_agent()
    del bare_machine.environment[BASELINES]
    refused(bare_machine, "the agent of `orion bench` accepts only processes of that command")


def test_a_policy_that_the_library_does_not_know_is_taken_as_gate(bare_machine: Machine, tmp_path: Path) -> None:
    """A newer agent might set a policy that the library does not know."""
    (tmp_path / "sitecustomize.py").write_text(
        "from dataclasses import replace\n"
        "from orion.hook import policy_table as table\n"
        "newer = table.Policy('newer', 9, 'what is not invented yet')\n"
        "table.TABLE = replace(table.RELEASE, policies=(*table.RELEASE.policies, newer))\n"
    )
    bare_machine.environment["PYTHONPATH"] = str(tmp_path)
    bare_machine.start_agent()
    hp, be = under(bare_machine, "newer")
    launched = hp.must(f"launch 1 {LONG * 1000} 1")
    assert waits(be, hp, launched)
    eventually(lambda: any("does not know the policy" in line for line in be.said), "be says so")
