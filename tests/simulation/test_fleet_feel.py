"""What services feel under a plan, and the sentence that says so."""

from orion.planning.fleet.fleets import Fleet, Service, Training
from orion.simulation.fleet import answer
from orion.simulation.fleet.feel import Felt


def fleet() -> Fleet:
    services = (
        Service("slow", 0.04, ((0.0, 10.0), (8.0, 30.0)), 0.3, 20.0),
        Service("fast", 0.002, ((0.0, 300.0), (8.0, 900.0), (20.0, 300.0)), 0.02, 20.0),
    )
    return Fleet(141.0, None, 24.0, 0.0003, 1, services, (), (Training("tune", 2, 1, 6.0, 30.0, 24.0),))


def test_p99_grows_by_a_switch_at_most() -> None:
    found = answer.answer(fleet(), 1, is_finish=False)
    for before, after in zip(found.apart, found.shared, strict=True):
        assert before.gpus == after.gpus
        assert before.p99_ms is not None
        assert after.p99_ms is not None
        assert -1e-9 <= after.p99_ms - before.p99_ms <= 0.3 + 1e-6


def test_the_sentence_names_the_service_whose_p99_grows_most() -> None:
    found = answer.answer(fleet(), 1, is_finish=False)
    apart = (Felt("slow", 2, 180.0, 0.0), Felt("fast", 2, 10.0, 0.0))
    grown = answer.Answer(found.plan, False, (Felt("slow", 2, 180.0, 0.0), Felt("fast", 2, 10.4, 0.0)), apart)
    assert "; the p99 of fast grows by 4 %, and no other service's grows more." in answer.sentence(grown)
    assert "; no service's p99 grows." in answer.sentence(answer.Answer(found.plan, False, apart, apart))
