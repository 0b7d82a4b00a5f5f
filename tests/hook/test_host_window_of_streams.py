"""Work in streams where the hook can put no event: the window forgets it by its expected time, however busy hp is."""

from tests.hook.harness import Machine
from tests.hook.scripted_client import eventually, warm
from tests.waiting import DEADLINE

STUCK_S = 1.0
""" After so long without progress, the hook forgets all work in flight and launches (be/window.c). """
BY_THREAD = 3
""" A scripted client's stream that is another one for each thread, so a thread can put no event there for others. """
TIMES = 10


def test_work_without_an_event_is_forgotten_beside_an_hp_that_is_busy_again_and_again(machine: Machine) -> None:
    hp, be = machine.start("hp-0"), machine.start("be-0")
    warm(be, 20)
    warm(be, 20_000, launches=10)
    machine.until_known(hp, be)
    hp.send("serve 1000000 300 2000 1")  # until it is killed
    soon: list[float] = []

    def often_soon() -> bool:
        be.must(f"launch 1 20 {BY_THREAD}")
        seconds = be.must("run 1 20000 1").seconds  # needs the whole window
        if seconds < STUCK_S:
            soon.append(seconds)
        return len(soon) == TIMES

    eventually(often_soon, lambda: f"only {len(soon)} launches had room before the window was stuck", DEADLINE)
