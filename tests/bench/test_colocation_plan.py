"""The runs of a scenario: their names, order, arrivals, and the processes that they share."""

from pathlib import Path
from typing import Any

import pytest

from orion.bench.colocation.gpus import Device
from orion.bench.colocation.measurement import Measurement
from orion.bench.colocation.plan import Plan, PlannedRun
from orion.bench.colocation.posts import posts_of
from orion.bench.colocation.results import Results
from orion.bench.colocation.scenario import Arrivals, Experiment, Paced, Scenario
from orion.bench.colocation.schedule import rate_of, schedule
from orion.errors import Exhausted, Invalid

HP = {"workload": "simulated-inference", "options": {"kernels": 4}}
BE: list[dict[str, Any]] = [{"workload": "simulated-training"}, {"workload": "gemm", "options": {"size": 2048}}]
HP_ID = "simulated-inference-kernels-4-poisson-0.4"


def experiment(**changes: Any) -> dict[str, Any]:
    usual = {"hp": HP, "arrivals": {"kind": "poisson", "load": 0.4}, "be": BE, "systems": ["alone", "gate", "mps"]}
    return {**usual, **changes}


def planned(*experiments: dict[str, Any], **changes: Any) -> Plan:
    fields = {"name": "one", "rounds": 2, "experiments": experiments or [experiment()], **changes}
    return Plan(Scenario.model_validate(fields).resolved(Path()))


def runs(plan: Plan) -> list[PlannedRun]:
    return [run for unit in plan.units for run in unit.runs]


def test_a_round_has_its_references_once_and_each_system_beside_each_be() -> None:
    first = sorted(run.path for run in runs(planned()) if run.round == 0)
    assert first == sorted([
        f"runs/{HP_ID}/0/be-alone/gemm-size-2048.json.gz",
        f"runs/{HP_ID}/0/be-alone/simulated-training.json.gz",
        *(f"runs/{HP_ID}/0/{name}.json.gz" for name in ("alone", "hp-closed-loop")),
        *(f"runs/{HP_ID}/0/{be}/{system}.json.gz"
          for be in ("gemm-size-2048", "simulated-training") for system in ("gate", "mps")),
    ])  # fmt: skip


def test_the_order_is_shuffled_from_the_seed_and_pairs_stay_together() -> None:
    order = [run.path for run in runs(planned(rounds=6))]
    assert order == [run.path for run in runs(planned(rounds=6))]
    assert order != [run.path for run in runs(planned(rounds=6, seed=2))]
    blocks = [run.block for run in runs(planned(rounds=6))]
    assert len(set(blocks)) == len([block for number, block in enumerate(blocks) if blocks[number - 1] != block])
    assert [run.round for run in runs(planned(rounds=6))] == sorted(run.round for run in runs(planned(rounds=6)))


def test_the_closed_loop_comes_first_in_a_round() -> None:
    for number in range(2):
        assert next(run for run in runs(planned()) if run.round == number).kind == "hp-closed-loop"


def test_a_system_may_be_measured_in_fewer_rounds() -> None:
    systems = {"mps": {"kind": "mps", "rounds": 1}}
    found = {(run.system, run.round) for run in runs(planned(systems=systems))}
    assert ("mps", 0) in found
    assert ("mps", 1) not in found
    assert ("gate", 1) in found


def test_an_experiment_may_be_measured_in_fewer_rounds() -> None:
    once = experiment(be=BE[:1], rounds=1)
    found = {(run.be_id, run.round) for run in runs(planned(once, experiment(be=BE[1:])))}
    assert {("simulated-training", 0), ("gemm-size-2048", 1), (None, 1)} < found
    assert ("simulated-training", 1) not in found
    assert {run.round for run in runs(planned(once))} == {0}


def test_a_ceiling_adds_closed_loops_to_the_plan() -> None:
    found = {run.path for run in runs(planned(experiment(ceiling=["mps", "none-in-threads"], be=BE[:1]), rounds=1))}
    beside = f"runs/{HP_ID}/0/simulated-training"
    assert found >= {
        f"runs/{HP_ID}/0/mps-closed-loop.json.gz", f"runs/{HP_ID}/0/threads-closed-loop.json.gz",
        f"{beside}/closed-overlap-mps.json.gz", f"{beside}/threads-closed-overlap-none-in-threads.json.gz",
    }  # fmt: skip


def test_experiments_of_one_hp_share_its_references() -> None:
    plan = planned(experiment(be=BE[:1]), experiment(be=BE[1:]))
    assert [unit.round for unit in plan.units] == [0, 1]
    paths = [run.path for run in runs(plan)]
    assert len(paths) == len(set(paths))


def test_the_same_pair_twice_is_rejected() -> None:
    with pytest.raises(Invalid, match="is listed twice"):
        planned(experiment(), experiment())


def test_different_workloads_never_share_a_name() -> None:
    odd = [{**HP, "options": {"timeline": text}} for text in ("a b", "a-b", "a" * 200)]
    plan = planned(*(experiment(hp=hp) for hp in odd))
    names = [unit.hp_id for unit in plan.units]
    assert len(set(names)) == 3
    assert all(len(name) < 100 and "/" not in name and " " not in name for name in names)


def test_the_only_pattern_keeps_matching_runs_and_their_references() -> None:
    plan = planned()
    plan.only("*/gemm*/gate")
    assert {run.system for run in runs(plan)} == {"hp-closed-loop", "alone", "be-alone", "gate"}
    assert {run.be_id for run in runs(plan)} == {None, "gemm-size-2048"}
    with pytest.raises(Invalid, match="--only nothing matches no run"):
        plan.only("nothing")


def test_systems_share_processes_where_possible() -> None:
    by_system = {
        run.system: posts_of(run, simulated=True) for run in runs(planned(experiment(be=BE[:1]))) if run.round == 0
    }
    assert by_system["alone"] == by_system["hp-closed-loop"]
    assert by_system["gate"][0] != by_system["alone"][0]
    assert [post.mode for post in by_system["mps"]] == ["mps", "mps"]


def test_orion_with_other_settings_uses_the_same_processes() -> None:
    systems = {"orion-2": {"kind": "orion", "max_slowdown": 2}}
    plan = planned(experiment(systems=["gate", "orion-2"], be=BE[:1]), systems=systems)
    by_system = {run.system: posts_of(run, simulated=True) for run in runs(plan) if run.round == 0}
    assert by_system["gate"][0].clients == by_system["orion-2"][0].clients
    assert by_system["gate"] == by_system["orion-2"]


def test_equal_be_clients_have_separate_slots_and_be_alone_has_one_client() -> None:
    plan = planned(experiment(be=[{**BE[0], "count": 3, "requests": [0.4, 0.2, 0.2]}], systems=["gate", "timeslice"]))
    by_system = {run.system: posts_of(run, simulated=True) for run in runs(plan) if run.round == 0}
    assert [(post.index, post.request) for post in by_system["gate"][1:]] == [(0, 0.4), (1, 0.2), (2, 0.2)]
    assert len(by_system["timeslice"]) == 4
    assert len(by_system["be-alone"]) == 1


def arrivals(**fields: Any) -> Arrivals:
    return Experiment.model_validate({**experiment(), "arrivals": fields}).arrivals


def test_a_load_is_a_share_of_the_capacity() -> None:
    assert rate_of(Paced(kind="poisson", load=0.25), 200.0) == 50.0


def test_a_rate_above_capacity_is_rejected_with_both_figures() -> None:
    with pytest.raises(Exhausted, match=r"hp gets 300.0 requests/s, but can serve only 200.0"):
        rate_of(Paced(kind="poisson", rate=300.0), 200.0)


@pytest.mark.parametrize(
    "fields",
    [{"kind": "poisson", "rate": 50.0}, {"kind": "uniform", "rate": 50.0},
     {"kind": "trace", "gaps": [0.0, 3.0, 1.0], "rate": 50.0}],
    ids=["poisson", "uniform", "trace"],
)  # fmt: skip
def test_the_schedule_has_the_wanted_number_of_requests_at_the_wanted_rate(fields: dict[str, Any]) -> None:
    made = schedule(arrivals(**fields), 50.0, 300, 0.5, 0.01, "seed")
    assert made.arrivals is not None
    assert sum(1 for time in made.arrivals if time >= 0.5) == 300
    assert made.arrivals == sorted(made.arrivals)
    assert made.end == made.arrivals[-1]
    assert made.end == pytest.approx(6.5, rel=0.25)
    assert made == schedule(arrivals(**fields), 50.0, 300, 0.5, 0.01, "seed")


def test_a_closed_loop_is_as_long_as_its_iterations_alone() -> None:
    made = schedule(arrivals(kind="closed"), None, 100, 0.5, 0.01, "seed")
    assert made.arrivals is None
    assert made.end == pytest.approx(1.5)


def test_a_round_without_enough_time_begins_with_the_pairs_of_the_highest_priority(tmp_path: Path) -> None:
    important = experiment(be=[BE[0]], systems=["gate"], priority=1)
    plan = planned(experiment(be=[BE[1]], systems=["gate"]), important, rounds=1)
    measurement = Measurement(plan.scenario, plan, Results(tmp_path), [Device(0, "", "")], True)
    measurement._deadline = 0.0
    (unit,) = plan.units
    names = [Path(run.path).name.partition(".")[0] for run in measurement._in_order(unit).runs]
    assert names == ["hp-closed-loop", "alone", "simulated-training", "gate", "gemm-size-2048", "gate"]


def test_runs_of_skipped_workloads_are_left_out() -> None:
    plan = planned()
    plan.skip({"gemm"})
    assert {run.entry.workload for run in runs(plan) if run.entry} == {"simulated-training"}
    assert {run.kind for run in runs(plan)} == {"hp-closed-loop", "alone", "be-alone", "beside"}
    plan.skip({"simulated-training"})
    assert plan.units == []
