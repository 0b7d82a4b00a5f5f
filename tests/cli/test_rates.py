"""Launch rates if a client updates its counters less often, or more often, than snapshots are taken."""

import pytest

from orion.cli.rates import Rates
from orion.node_agent.api import agent_pb2

TRUE_RATE = 490


def _snapshot(taken: float, counted: float, gated: float = 0.0, generation: int = 1) -> agent_pb2.Snapshot:
    """Return an agent's snapshot of one client that launches at the true rate."""
    client = agent_pb2.Client(
        place=0,
        generation=generation,
        launches=round(TRUE_RATE * counted),
        counted_seconds=counted,
        gated_seconds=gated,
    )
    slot = agent_pb2.Slot(name="be-0", role=agent_pb2.BE, clients=[client])
    return agent_pb2.Snapshot(taken_seconds=taken, gpus=[agent_pb2.Gpu(uuid="GPU-0", slots=[slot])])


def _launches(rates: Rates, snapshot: agent_pb2.Snapshot) -> float | None:
    [found] = rates.update(snapshot).values()
    return found.launches


def test_a_client_that_counts_less_often_than_snapshots_are_taken_has_its_true_rate() -> None:
    rates = Rates()
    shown = [_launches(rates, _snapshot(10 + second, 10 + (second // 2) * 2)) for second in range(8)]
    assert shown[:2] == [None, None]  # one count gives no rate
    assert shown[2:] == pytest.approx([TRUE_RATE] * 6)


def test_counts_at_uneven_times_do_not_make_the_figure_jump() -> None:
    rates = Rates()
    counted = [9.1, 10.99, 11.0, 12.95, 13.01]
    shown = [_launches(rates, _snapshot(10 + second, at)) for second, at in enumerate(counted)]
    assert shown[1:] == pytest.approx([TRUE_RATE] * 4, rel=0.1)


def test_the_rate_of_a_client_that_stops_counting_becomes_zero() -> None:
    rates = Rates()
    for taken, counted in ((10.0, 10.0), (11.0, 11.0), (12.0, 11.0)):
        shown = _launches(rates, _snapshot(taken, counted))
    assert shown == pytest.approx(TRUE_RATE)
    assert _launches(rates, _snapshot(14.0, 11.0)) == 0.0


def test_shares_are_over_the_time_between_two_snapshots() -> None:
    rates = Rates()
    rates.update(_snapshot(10.0, 10.0, gated=1.0))
    [found] = rates.update(_snapshot(12.0, 12.0, gated=2.0)).values()
    assert found.gated == pytest.approx(0.5)


def test_another_client_with_the_same_index_has_no_rate_at_first() -> None:
    rates = Rates()
    rates.update(_snapshot(10.0, 10.0))
    assert _launches(rates, _snapshot(11.0, 5.0, generation=2)) is None
