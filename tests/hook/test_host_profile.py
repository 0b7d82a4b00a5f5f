"""An administrator's profile determines the hook's decisions before a kernel is ever measured."""

from orion.crds.profile import SharedGpuRow
from orion.hook import layout
from orion.node_agent.api import agent_pb2, profiles
from tests.hook.harness import Machine, record_word
from tests.hook.scripted_client import LONG_ENOUGH_TO_SEE, Client, eventually

ALIKE_US = 100
""" Launches below have the grid of kernels of this many microseconds. """


def row(duration_ns: int) -> agent_pb2.ProfileRow:
    shape = SharedGpuRow("timed", (132, 1 + ALIKE_US, 1), (256, 1, 1), 0, duration_ns, 60, layout.KernelClass.COMPUTE)
    return agent_pb2.ProfileRow(
        identity=profiles.identity_of(shape), duration_ns=duration_ns, sms=60, kernel_class=agent_pb2.COMPUTE
    )


def in_flight_ms(machine: Machine, be: Client) -> float:
    """Launch one long kernel that looks like the profile's kernel; return the work in flight that the hook expects."""
    be.must(f"launch 1 {LONG_ENOUGH_TO_SEE * 1_000} 1 {ALIKE_US}")
    shown = machine.shown(be)
    assert shown is not None
    be.must("sync 1")
    return shown.in_flight_us / 1000


def test_a_profile_applies_until_the_kernel_is_measured(machine: Machine) -> None:
    machine.start("be-0").close()
    machine.agent.set_profile(machine.uuids[0], "be-0", [row(20_000_000)])
    be = machine.start("be-0")
    assert in_flight_ms(machine, be) == 20
    eventually(lambda: in_flight_ms(machine, be) > 200, "the hook has measured the kernel")


def test_a_profile_reaches_a_running_client(machine: Machine) -> None:
    be = machine.start("be-0")
    be.must("run 1 50 1")
    known = record_word(be, "kernels_known")
    machine.agent.set_profile(machine.uuids[0], "be-0", [row(20_000_000)])
    eventually(lambda: record_word(be, "kernels_known") == known + 1, "the client has the row")
    assert in_flight_ms(machine, be) == 20
