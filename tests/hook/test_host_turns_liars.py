"""be clients that lie about what they do take nothing from others: their own slot pays."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.hook import lying_client
from tests.hook.gpu_time import Timeline, of_all, shares_of_the_next, start_traced
from tests.hook.harness import Machine, figure
from tests.hook.scripted_client import eventually, warm

pytestmark = pytest.mark.quiet

HONEST = ("be-0", "be-1")
KERNEL_US = 400
SECONDS = 3.0
THIRD = 1 / 3


@contextmanager
def liar_in(machine: Machine, slot: str, *options: str) -> Iterator[Timeline]:
    """Run a lying client, and yield its timeline."""
    timeline = Timeline(machine.folder / f"trace-{slot}")
    environment = machine.client_environment(None) | {
        "ORION_SIM_TRACE": str(timeline.path),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    command = [sys.executable, lying_client.__file__, str(machine.root / "gpus" / machine.uuids[0] / slot), *options]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as liar:
        try:
            assert liar.stdout is not None
            assert liar.stdout.readline() == "works\n"
            yield timeline
            assert liar.poll() is None, "the liar has ended early"
        finally:
            liar.send_signal(signal.SIGKILL)


def honest(machine: Machine) -> dict[str, Timeline]:
    """Start two clients that work all the time; return their timelines."""
    timelines = {}
    for slot in HONEST:
        client, timelines[slot] = start_traced(machine, slot)
        warm(client, KERNEL_US)
        client.send(f"flood 300 {KERNEL_US}")
    until_shared(timelines)
    return timelines


def until_shared(timelines: dict[str, Timeline]) -> None:
    """Wait until the slots that work have about the same part, so that nothing of the start is measured."""

    def is_shared() -> bool:
        found = shares_of_the_next(1.0, timelines).values()
        return max(found) - min(found) < 0.1

    eventually(is_shared, "the shares have settled")


@pytest.mark.parametrize(
    ("reports", "kernel_us"), [(0, 200), (0.5, 200), (2, 200), *((part, 3000) for part in (1, 0, 0.5, 2))]
)
def test_false_reports_move_no_share(machine: Machine, reports: float, kernel_us: int) -> None:
    timelines = honest(machine)
    options = (f"--reports={reports}", f"--kernel-us={kernel_us}")
    with liar_in(machine, "be-2", *options) as timelines["be-2"]:
        eventually(lambda: shares_of_the_next(1.0, timelines)["be-2"] > 0.1, "the liar has turns")
        found = of_all(shares_of_the_next(SECONDS, timelines))
    what = ", ".join(f"{share:.3f}" for share in found.values())
    figure(f"shares {what}; the last reports {reports:g} x (kernels of {kernel_us} us)", list(found.values()), "")
    assert all(abs(share - THIRD) < 0.03 for share in found.values()), found


@pytest.mark.parametrize("options", [("--flood",), ("--processes=100",)], ids=" ".join)
def test_a_hostile_slot_that_works_takes_nothing_from_others(machine: Machine, options: tuple[str, ...]) -> None:
    timelines = honest(machine)
    with liar_in(machine, "be-2", *options) as timelines["be-2"]:
        eventually(lambda: shares_of_the_next(1.0, timelines)["be-2"] > 0.1, "the hostile slot has turns")
        found = of_all(shares_of_the_next(SECONDS, timelines))
    figure(f"shares beside a client (the last one) {' '.join(options)}", list(found.values()), "")
    assert min(found[slot] for slot in HONEST) > THIRD - 0.03


@pytest.mark.parametrize(
    ("options", "due"),
    [((), THIRD), (("--processes=100",), THIRD), (("--flood",), THIRD), (("--leave",), 0.5)],
    ids=["never hands back", "100 processes", "flood", "closes its socket"],
)
def test_a_hostile_slot_that_does_nothing_wastes_only_its_own_time(
    machine: Machine, options: tuple[str, ...], due: float
) -> None:
    timelines = honest(machine)
    usable = sum(shares_of_the_next(SECONDS, timelines).values())
    with liar_in(machine, "be-2", "--idle", *options):
        shares_of_the_next(1.0, timelines)
        found = shares_of_the_next(SECONDS, timelines)
    figure(f"shares beside an idle client {' '.join(options)}, of {usable:.3f}", list(found.values()), "")
    assert min(found.values()) > due * usable - 0.03


def test_a_client_that_closes_its_descriptors_still_takes_turns(machine: Machine) -> None:
    timelines = honest(machine)
    client, timelines["be-2"] = start_traced(machine, "be-2")
    warm(client, KERNEL_US)
    client.must("closefds")
    client.send(f"flood 300 {KERNEL_US}")
    until_shared(timelines)
    found = of_all(shares_of_the_next(SECONDS, timelines))
    assert all(abs(share - THIRD) < 0.03 for share in found.values()), found
