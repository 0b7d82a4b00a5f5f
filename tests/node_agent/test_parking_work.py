"""How much work a decision is: the agent's event loop makes it, and all clients wait for that meanwhile."""

import sys
from typing import Any

import pytest

from orion.node_agent.parking.deciding import decide
from orion.node_agent.parking.view import Place, Room, Tenant, View
from tests.node_agent.parking_views import FACTOR, GIB

NODE = "the node"


def calls(seen: View) -> int:
    """Return how many function calls a decision makes."""
    count = 0

    def note(_frame: Any, event: str, _arg: Any) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        decide(seen)
    finally:
        sys.setprofile(before)
    return count


def crowded(number: int, gpus: int, host: int, waits: int) -> View:
    """Return a view of full GPUs, each with so many small tenants, and as many that need several of their places."""
    here = [
        Tenant(f"h{gpu}-{i}", Place.HERE, 0.0, {f"G{gpu}": GIB}, clock=1000.0 + i, charged={NODE: GIB})
        for gpu in range(gpus)
        for i in range(number)
    ]
    away = [
        Tenant(f"a{gpu}-{i}", Place.AWAY, 0.0, {f"G{gpu}": waits * GIB}, clock=float(i))
        for gpu in range(gpus)
        for i in range(number)
    ]
    return View(1000.0, {f"G{gpu}": Room(0) for gpu in range(gpus)}, (*here, *away), FACTOR, host={NODE: host * GIB})


@pytest.mark.parametrize(("number", "gpus"), [(32, 1), (8, 8)])
@pytest.mark.parametrize("waits", [2, 4])
@pytest.mark.parametrize(("host", "times"), [(1, 4.4), (1000, 2.2)])
def test_with_twice_as_many_tenants_of_a_gpu_a_decision_is_about_twice_the_work(
    host: int, times: float, waits: int, number: int, gpus: int
) -> None:
    """Where only host memory keeps those who wait away, it is four times: each looks for others that fit there."""
    work = calls(crowded(number, gpus, host, waits))
    assert work <= times * calls(crowded(number // 2, gpus, host, waits))


@pytest.mark.parametrize("waits", [2, 4])
@pytest.mark.parametrize("host", [1, 1000])
def test_with_twice_as_many_gpus_a_decision_is_about_twice_the_work(host: int, waits: int) -> None:
    assert calls(crowded(8, 16, host, waits)) <= 2.2 * calls(crowded(8, 8, host, waits))
