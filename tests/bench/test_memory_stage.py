"""What a benchmark of memory says when a trainer has ended, and what contexts take on a real GPU."""

from types import SimpleNamespace
from typing import Any

import pytest

from orion.bench.memory.scenario import Driver
from orion.bench.memory.stage import Stage, Tenant
from orion.errors import Conflict, Unavailable


@pytest.mark.parametrize(("is_alive", "said"), [(False, "out of memory"), (True, "no process uses slot be-0")])
def test_a_trainer_that_has_ended_says_why_it_cannot_leave(is_alive: bool, said: str) -> None:
    def park(slot: str, away: bool) -> None:
        raise Conflict(f"no process uses slot {slot}")

    stage: Any = SimpleNamespace(gpu=SimpleNamespace(park=park))
    worker: Any = SimpleNamespace(alive=lambda: is_alive, failure=lambda what: Unavailable(f"{what}: out of memory"))
    with pytest.raises((Conflict, Unavailable), match=said):
        Stage.move(stage, Tenant(worker, "be-0"), away=True)


def test_contexts_of_a_real_gpu_take_more_if_the_scenario_says_nothing() -> None:
    assert Driver().on_a_gpu().context_mib > Driver().context_mib
    assert Driver(context_mib=300).on_a_gpu().context_mib == 300
