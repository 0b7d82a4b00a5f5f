"""`planner: orion`: its predictions against a simulation, and what every plan of it keeps."""

from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orion.planning.serving.latency import Latency
from orion.planning.serving.orion import choosing, costs, moving, partitions
from orion.planning.serving.orion.capacities import Capacities
from orion.planning.serving.orion.choosing import Decision
from orion.planning.serving.orion.prediction import Load, Predictor
from orion.planning.serving.orion.services import BestEffort, GpuType, Occupant, Profile, Service
from orion.planning.serving.plans import Assignment, Part, Plan
from orion.simulation.serving.confirm import miss_ratios

SHARES = (20, 40, 60, 100)


def profile(first_ms: float, each_ms: float, memory_mb: float = 1000.0) -> Profile:
    """A batch takes its first request's time whatever the share, or the requests' work on the share, what is longer."""
    points = {
        share: {batch: max(first_ms, first_ms / 2 + batch * each_ms * 100 / share) for batch in (1, 2, 4, 8, 16)}
        for share in SHARES
    }
    return Profile(Latency(points), memory_mb, (0.2,), 16)


PROFILES = {
    "quick": profile(1.0, 0.2), "small": profile(4.0, 1.0), "middle": profile(8.0, 2.0), "large": profile(15.0, 4.0)
}  # fmt: skip
OBJECTIVES_MS = {"quick": 10.0, "small": 60.0, "middle": 120.0, "large": 200.0}
FIGURES = Capacities()
CASES = st.dictionaries(st.sampled_from(sorted(PROFILES)), st.sampled_from([20.0, 60.0, 150.0, 300.0]), min_size=1)


def service(name: str, rate: float, **changes: object) -> Service:
    values: dict[str, object] = {
        "name": name, "rate": rate, "objective_ms": OBJECTIVES_MS.get(name, 100.0),
        "profiles": {"G": PROFILES.get(name, PROFILES["small"])},
    }  # fmt: skip
    return Service(**(values | changes))  # type: ignore[arg-type]


def beside(mine: Occupant, others: object) -> float:
    return 1.1 if others else 1.0


def gpu(count: int = 4, parts: int = 5, memory_mb: float = 9000.0, name: str = "G") -> GpuType:
    return GpuType(name, count, memory_mb, beside, 500.0, None, parts)


def planned(rates: dict[str, float], *gpus: GpuType) -> Decision:
    return choosing.plan([service(name, rate) for name, rate in rates.items()], gpus or (gpu(),), figures=FIGURES)


def in_simulation(plan: Plan, rates: dict[str, float], seconds: float, seed: int = 0) -> dict[str, float | None]:
    def batch_ms(part: Part, name: str, size: int) -> float:
        slow = 1.1 if any(other is not part and other.gpu == part.gpu for other in plan.parts) else 1.0
        return PROFILES[name].times_ms(part.share, slow)[size - 1]

    return miss_ratios(plan, rates, OBJECTIVES_MS, batch_ms, seconds, seed)


@pytest.mark.parametrize(
    ("share", "rates"),
    [
        (100, {"large": 180.0}),
        (40, {"small": 300.0}),
        (60, {"middle": 110.0, "large": 52.0}),
        (100, {"small": 200.0, "middle": 90.0, "large": 45.0}),
    ],
)
def test_predicted_misses_are_those_of_a_long_simulation(share: int, rates: dict[str, float]) -> None:
    loads = tuple(Load(rate, OBJECTIVES_MS[name], PROFILES[name].times_ms(share)[:8]) for name, rate in rates.items())
    predicted = Predictor().predicted(loads, 256).misses
    part = Part(0, share, 0, "turns", "edf", tuple(Assignment(name, 8, rate, 0.0) for name, rate in rates.items()))
    simulated = in_simulation(Plan((part,)), rates, 600.0)
    for name, missed in zip(rates, predicted, strict=True):
        assert missed == pytest.approx(simulated[name] or 0.0, rel=0.5, abs=0.003), name


def test_a_single_server_is_busy_for_rate_times_service_time() -> None:
    found = Predictor().predicted((Load(80.0, 1000.0, (10.0,)),))
    assert found.busy == pytest.approx(0.8, abs=0.02)
    assert found.misses == (0.0,)


def test_a_large_batch_and_a_rare_service_are_counted_after_the_warm_up() -> None:
    times = tuple(20.0 + batch / 10 for batch in range(1, 257))
    found = Predictor().predicted((Load(6000.0, 30.0, times), Load(1.0, 500.0, (3.0,))))
    assert found.misses[0] > 0.5


def test_the_same_part_is_predicted_the_same_whatever_was_asked_before() -> None:
    load = (Load(100.0, 50.0, (4.0, 5.0, 6.0)),)
    used = Predictor()
    used.predicted((*load, *load))
    assert used.predicted(load) == Predictor().predicted(load)


@settings(max_examples=40, deadline=None)
@given(CASES, st.sampled_from([1, 2, 5]))
def test_no_plan_gives_out_more_than_there_is(rates: dict[str, float], parts: int) -> None:
    found = planned(rates, gpu(3, parts)).plan
    share: dict[int, int] = defaultdict(int)
    memory: dict[int, float] = defaultdict(float)
    count: dict[int, int] = defaultdict(int)
    got: dict[str, float] = defaultdict(float)
    for part in found.parts:
        assert 0 <= part.gpu < 3
        assert part.share in SHARES
        share[part.gpu] += part.share
        count[part.gpu] += 1
        memory[part.gpu] += 500.0 + sum(PROFILES[each.service].memory_mb for each in part.services)
        for each in part.services:
            got[each.service] += each.throughput
    assert max(share.values(), default=0) <= 100
    assert max(count.values(), default=0) <= parts
    assert max(memory.values(), default=0.0) <= 9000.0
    assert dict(got) == (pytest.approx(rates) if found.is_schedulable else {})
    assert len({(part.gpu, part.share, part.copy) for part in found.parts}) == len(found.parts)


@settings(max_examples=25, deadline=None)
@given(CASES)
def test_more_gpus_never_schedule_less_and_never_change_a_plan(rates: dict[str, float]) -> None:
    few, many = planned(rates, gpu(1)), planned(rates, gpu(3))
    assert many.plan.is_schedulable or not few.plan.is_schedulable
    if few.plan.is_schedulable and many.plan.gpus == 1:
        assert few.plan.parts == many.plan.parts


@settings(max_examples=25, deadline=None)
@given(CASES, st.randoms(use_true_random=False))
def test_the_order_of_services_and_earlier_plans_change_nothing(rates: dict[str, float], random: object) -> None:
    names = list(rates)
    random.shuffle(names)  # type: ignore[attr-defined]
    services = [service(name, rates[name]) for name in names]
    assert choosing.plan(services, [gpu()], figures=FIGURES) == planned(rates)


def test_a_plan_without_earlier_figures_is_the_same() -> None:
    rates = {"quick": 60.0, "large": 60.0}
    assert choosing.plan([service(*each) for each in rates.items()], [gpu()]) == planned(rates)


@settings(max_examples=12, deadline=None)
@given(CASES)
def test_every_plan_holds_its_objectives_in_the_simulator(rates: dict[str, float]) -> None:
    found = planned(rates).plan
    if found.is_schedulable:
        assert all((missed or 0.0) <= 0.01 for missed in in_simulation(found, rates, 60.0, 5).values())


def test_one_service_gets_the_whole_gpu_and_two_that_fit_take_turns_in_order_of_deadlines() -> None:
    alone = planned({"middle": 60.0}, gpu(parts=1))
    assert [(part.share, part.way) for part in alone.plan.parts] == [(100, "exclusive")]
    assert alone.needs == ()
    both = planned({"middle": 60.0, "large": 20.0}, gpu(parts=1))
    assert [(part.share, part.way, part.order) for part in both.plan.parts] == [(100, "turns", "edf")]
    assert both.plan.gpus == 1
    assert "one process" in both.needs[0]
    assert "take turns" in both.gpus[0].why


def test_a_service_that_cannot_wait_for_anothers_batch_gets_a_part_and_the_sentence_says_so() -> None:
    found = planned({"quick": 20.0, "large": 60.0})
    assert found.plan.gpus == 1
    assert {part.way for part in found.plan.parts} == {"part"}
    assert "quick cannot wait for a batch of large within 10 ms" in found.plan.reason


def test_where_all_ways_of_one_gpu_hold_the_shortest_latency_decides() -> None:
    services = [service("quick", 20.0, objective_ms=60.0), service("large", 10.0)]
    found = choosing.plan(services, [gpu()], figures=FIGURES)
    assert {part.way for part in found.plan.parts} == {"part"}
    work = [BestEffort("training", 1000.0)]
    assert choosing.plan(services, [gpu()], best_effort=work, figures=FIGURES).gpus[0].way == "turns"
    alike = [service("small", 60.0), service("also", 60.0)]
    assert choosing.plan(alike, [gpu()], figures=FIGURES).gpus[0].way == "turns"


def test_a_service_that_waits_for_its_batch_to_fill_is_predicted_so() -> None:
    times = PROFILES["middle"].times_ms(100)[:8]
    loads = [Load(100.0, 60.0, times, delay) for delay in (0.0, 30.0)]
    part = Part(0, 100, 0, "exclusive", "edf", (Assignment("middle", 8, 100.0, 30.0),))
    simulated = miss_ratios(
        Plan((part,)), {"middle": 100.0}, {"middle": 60.0}, lambda part, name, size: times[size - 1], 600.0, 0
    )
    waiting = Predictor().predicted((loads[1],), 256).misses[0]
    assert waiting == pytest.approx(simulated["middle"], abs=0.003)
    assert Predictor().worst((loads[1],), (0.99,)) > Predictor().worst((loads[0],), (0.99,))
    found = choosing.plan([service("middle", 60.0, max_delay_ms=5.0)], [gpu()], figures=FIGURES)
    assert found.plan.parts[0].services[0].max_delay_ms == 5.0
    with pytest.raises(ValueError, match="below the objective"):
        service("middle", 60.0, max_delay_ms=200.0)


def test_services_of_one_process_get_green_contexts() -> None:
    services = [service(name, 20.0, process="app") for name in ("quick", "large")]
    found = choosing.plan(services, [gpu()], figures=FIGURES)
    assert {part.way for part in found.plan.parts} == {"threads"}


def test_a_service_too_fast_for_one_gpu_is_split_over_several() -> None:
    found = planned({"large": 300.0}).plan
    assert found.gpus >= 2
    assert sum(each.throughput for part in found.parts for each in part.services) == pytest.approx(300.0)


@pytest.mark.parametrize(("rate", "gpus"), [(0.5, [1]), (5.0, [4, 5, 6, 7, 8])])
def test_an_objective_of_less_than_two_batches_is_held_where_hardly_a_request_finds_another(
    rate: float, gpus: list[int]
) -> None:
    """A request takes 4 ms, so one that finds another one is late if it has to wait for more than 2 ms."""
    found = choosing.plan([service("small", rate, objective_ms=6.0)], (gpu(8, parts=1),), figures=FIGURES)
    assert found.plan.is_schedulable
    assert found.plan.gpus in gpus
    assert {part.way for part in found.plan.parts} == {"exclusive"}
    assert sum(used.missed for used in found.gpus) < 0.01 * rate


def test_where_an_objective_of_less_than_two_batches_needs_many_gpus_the_reason_says_what_would_help() -> None:
    found = choosing.plan([service("small", 50.0, objective_ms=6.0)], (gpu(8, parts=1),), figures=FIGURES)
    assert not found.plan.is_schedulable
    assert found.plan.reason.endswith("add a GPU or lower a rate, or allow small at least 8.4 ms")


def test_rates_of_zero_need_no_gpu() -> None:
    found = planned({"small": 0.0})
    assert found.plan == Plan(())
    assert found.gpus == ()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"objective_ms": 5.0}, "one request alone takes 15.2 ms, and the objective is 5 ms: allow at least 30.4 ms"),
        ({"profiles": {"other": PROFILES["large"]}}, "no profile for any of these GPUs"),
        ({"profiles": {"G": profile(15.0, 4.0, 1e6)}}, "needs 1.0005e+06 MB on a GPU, and a GPU offers 9000"),
        ({"rate": 5000.0}, "the services do not fit on 4 GPUs"),
    ],
)
def test_a_service_that_cannot_be_held_is_named_with_the_reason(changes: dict[str, object], sentence: str) -> None:
    found = choosing.plan([service("large", **({"rate": 20.0} | changes))], [gpu()], figures=FIGURES).plan  # type: ignore[arg-type]
    assert not found.is_schedulable
    assert found.parts == ()
    assert sentence in found.reason


@pytest.mark.parametrize("changes", [{"rate": -1.0}, {"rate": float("nan")}, {"objective_ms": 0.0}, {"quantile": 1.0}])
def test_values_that_are_no_service_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="large"):
        service("large", **({"rate": 20.0} | changes))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="twice"):
        choosing.plan([service("large", 1.0), service("large", 2.0)], [gpu()])


def test_gpus_of_several_types_are_numbered_by_type_and_services_stay_where_they_have_a_profile() -> None:
    services = [
        service("small", 60.0, profiles={"slow": PROFILES["small"]}),
        service("large", 60.0, profiles={"fast": PROFILES["middle"], "slow": PROFILES["large"]}),
    ]
    found = choosing.plan(services, [gpu(2, name="fast"), gpu(2, name="slow")], figures=FIGURES)
    assert found.plan.is_schedulable
    where = {each.service: part.gpu for part in found.plan.parts for each in part.services}
    assert where["small"] >= 2
    assert {used.type for used in found.gpus} == {"slow"}


def test_a_running_plan_stays_while_it_holds_and_moves_little_when_it_grows() -> None:
    rates = {"small": 60.0, "middle": 60.0, "large": 60.0}
    first = planned(rates)
    services = [service(name, rate * 0.95) for name, rate in rates.items()]
    again = choosing.plan(services, [gpu()], previous=first.plan, figures=FIGURES)
    places = [(part.gpu, part.share, [each.service for each in part.services]) for part in first.plan.parts]
    assert [(part.gpu, part.share, [each.service for each in part.services]) for part in again.plan.parts] == places
    moved = Plan(tuple(Part(3, p.share, p.copy, p.way, p.order, p.services) for p in first.plan.parts))
    grown = [service(name, rate * 5) for name, rate in rates.items()]
    after = choosing.plan(grown, [gpu()], previous=moved, figures=FIGURES).plan
    assert after.is_schedulable
    assert 3 in {part.gpu for part in after.parts}


def test_a_running_plan_of_other_services_is_no_hindrance() -> None:
    other = Plan((Part(0, 100, 0, "exclusive", "edf", (Assignment("gone", 1, 5.0, 0.0),)),))
    found = choosing.plan([service("small", 60.0)], [gpu()], previous=other, figures=FIGURES).plan
    assert [each.service for part in found.parts for each in part.services] == ["small"]
    assert not moving._within((60, 60), (60, 40))


def test_best_effort_runs_beneath_the_gpu_with_most_time_left() -> None:
    work = [BestEffort("training", 1000.0, 1.25), BestEffort("huge", 1e6)]
    found = choosing.plan([service("small", 20.0)], [gpu()], best_effort=work, figures=FIGURES)
    (placed,) = found.beneath
    assert (placed.name, placed.gpu) == ("training", 0)
    assert placed.speed == pytest.approx(found.gpus[0].spare / 1.25)
    assert 0.5 < found.gpus[0].spare < 1


def test_costs_of_a_gpu_name_their_sources_and_limit_what_parts_do_together() -> None:
    h200 = costs.known("NVIDIA H200")
    assert h200 is costs.H200
    assert costs.known("L4") is None
    assert h200.co_runs.source
    slowed = costs.slowdown(h200, PROFILES)
    mine, other = Occupant("large", 16, 60, 0), Occupant("large", 16, 40, 1)
    assert slowed(mine, []) == 1.0
    assert slowed(mine, [other]) == pytest.approx(1.175)
    assert costs.slowdown(h200, PROFILES, one_process=True)(mine, [other]) == 1.0
    light, also = Occupant("quick", 1, 60, 0), Occupant("quick", 1, 40, 1)
    assert slowed(light, [also]) == pytest.approx(1.175 * 2 / 1.33)


def test_cuts_leave_no_part_out_that_would_fit() -> None:
    assert partitions.cuts((20, 40, 50, 60, 80, 100), 2) == [(100,), (80, 20), (60, 40), (50, 50)]
    assert (40, 40, 20) in partitions.cuts((20, 40, 100), 5)
    assert partitions.cuts((100,), 5) == [(100,)]
    assert len(list(partitions.combined([(100,), (60, 40)], 3))) == 4
    assert all(len(each) == 40 for each in partitions.combined(partitions.cuts((20, 40, 60, 100), 5), 40))
