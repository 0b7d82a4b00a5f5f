"""Turns of several GPUs around the windows of jobs that use more than one of them."""

import pytest

from orion.node_agent.sharing.demand import Demand
from orion.node_agent.sharing.joint import Agreement, Window
from orion.node_agent.sharing.turns import Turns
from orion.planning.sharing.due import due
from tests.node_agent.joint_node import GPUS, MS, STEP_NS, Node, begin, parts, shares, stop

HANDOVER_NS = MS // 5


def test_a_job_has_the_turn_on_all_of_its_gpus_at_the_same_time() -> None:
    first, second = shares(Node({"be-0": 0.0, "be-1": 0.0}, {"be-0": 0.0, "be-1": 0.0, "be-2": 0.0}))
    assert first == pytest.approx({"be-0": 1 / 3, "be-1": 2 / 3}, abs=0.03)
    assert second == pytest.approx({"be-0": 1 / 3, "be-1": 1 / 3, "be-2": 1 / 3}, abs=0.03)


def test_requests_count_beside_a_job() -> None:
    first, second = shares(Node({"be-0": 0.6, "be-1": 0.1, "be-2": 0.3}, {"be-0": 0.6, "be-1": 0.4}))
    assert first == pytest.approx({"be-0": 0.6, "be-1": 0.1, "be-2": 0.3}, abs=0.03)
    assert second == pytest.approx({"be-0": 0.6, "be-1": 0.4}, abs=0.03)


def test_where_nobody_competes_with_the_job_it_is_never_held() -> None:
    first, second = shares(Node({"be-0": 0.0, "be-1": 0.0}, {"be-0": 0.0}))
    assert first == pytest.approx({"be-0": 0.5, "be-1": 0.5}, abs=0.03)
    assert second["be-0"] == pytest.approx(1.0)


def test_others_have_all_time_once_the_job_has_no_work_there() -> None:
    node = Node({"be-0": 0.0, "be-1": 0.0, "be-2": 0.0}, {"be-0": 0.0, "be-1": 0.0})
    shares(node)
    node.idle |= {(0, "be-0"), (1, "be-0")}
    first, second = shares(node)
    assert first == pytest.approx({"be-0": 0.0, "be-1": 0.5, "be-2": 0.5}, abs=0.03)
    assert second["be-1"] == pytest.approx(1.0, abs=0.03)


def test_the_job_gets_its_window_back_after_a_pause() -> None:
    node = Node({"be-0": 0.0, "be-1": 0.0}, {"be-0": 0.0, "be-1": 0.0})
    shares(node)
    for number, turns in enumerate(node.turns):
        node.idle.add((number, "be-0"))
        turns.hand_back("be-0", node.now)
    shares(node, 0.5)
    node.idle.clear()
    for turns in node.turns:
        turns.ask("be-0", node.now)
    first, second = shares(node)
    assert first == second == pytest.approx({"be-0": 0.5, "be-1": 0.5}, abs=0.03)


def test_a_slot_that_comes_beside_a_job_that_had_its_gpus_alone_gets_its_part() -> None:
    node = Node({"be-0": 0.0, "be-1": 0.0}, {"be-0": 0.0})
    node.idle.add((0, "be-1"))
    shares(node, 0.5)
    assert node.agreement.windows("GPU-0", node.now)["job"] == Window(0.0, 1.0)
    node.idle.clear()
    first, _ = shares(node)
    assert first == pytest.approx({"be-0": 0.5, "be-1": 0.5}, abs=0.03)


def test_a_slot_that_could_have_one_turn_only_has_its_window_in_each_joint_cycle() -> None:
    """Its limit allowed one turn until the next check. A window is as short as the limit allows in a cycle."""
    turns, now, windows = Turns(), 1_000 * MS, {"be-0": Window(0.0, 0.5)}
    demands = {name: Demand(limit=limit, ceiling=limit, waiting=True) for name, limit in (("be-0", 0.005), ("be-1", 1))}
    while not turns.plans or turns.plans["be-0"].cycle_ns < 700 * MS:
        turns.look(now, 1.0, demands)
        now += 70 * MS
    turns.look(now, 1.0, demands, windows=windows, joint_ns=40 * MS)
    assert turns.plans["be-0"].cycle_ns == turns.plans["be-1"].cycle_ns == 40 * MS


def test_windows_leave_no_debts() -> None:
    node = Node({"be-0": 0.5, "be-1": 0.3, "be-2": 0.1}, {"be-0": 0.0, "be-1": 0.7})
    shares(node, 30.0)
    for turns in node.turns:
        assert all(abs(account.balance_ns) < 20 * MS for account in turns.accounts.values())


def test_a_job_is_due_its_windows() -> None:
    node = Node({"be-0": 0.5, "be-1": 0.3, "be-2": 0.1}, {"be-0": 0.0, "be-1": 0.7})
    shares(node, 30.0)
    for turns in node.turns:
        job = turns.accounts["be-0"]
        assert job.was_due_ns > 10 * MS
        assert job.was_charged_ns == pytest.approx(job.was_due_ns, abs=10 * MS)


@pytest.mark.parametrize(("others", "request_of_job", "useful"), [(8, 0.9, 0.05), (30, 0.5, 0.35), (60, 0.5, 0.35)])
def test_many_slots_beside_a_job_can_use_most_of_their_time(others: int, request_of_job: float, useful: float) -> None:
    slots = {"be-0": request_of_job} | {f"be-{number}": 0.0 for number in range(1, others + 1)}
    node = Node(slots, {"be-0": request_of_job})
    for _ in node.run(2.0):
        pass
    used = dict.fromkeys(slots, 0.0)
    begin = node.now
    for _ in range(60):
        node.look()
        for name, plan in node.turns[0].plans.items():
            span = node.now, node.now + 70 * MS
            used[name] += max(0, plan.time(*span) - HANDOVER_NS * plan.begun(*span))
        node.now += 70 * MS
    parts = [used[name] / (node.now - begin) for name in slots if name != "be-0"]
    assert sum(parts) > useful
    assert min(parts) > 0.5 * useful / others


def test_two_slots_of_a_job_on_one_gpu_share_its_window() -> None:
    agreement, gpus = Agreement(), (Turns(), Turns())
    requests = ({"be-0": 0.1, "be-1": 0.8, "be-2": 0.0}, {"be-0": 0.0})
    now, had = 1_000_000 * MS, 0.0
    for step in range(60):
        for number, (turns, slots) in enumerate(zip(gpus, requests, strict=True)):
            agreed = agreement.windows(GPUS[number], now).get("job")
            agreement.progressed("job", now)
            demands = {name: Demand(request, launched=True, waiting=True) for name, request in slots.items()}
            windows = {name: agreed for name in slots if name != "be-2"} if agreed else {}
            turns.look(now, 1.0, demands, windows=windows, joint_ns=agreement.cycle_ns)
            parts = due(turns.accounts.claims())
            agreement.note(GPUS[number], {"job": sum(parts[name] for name in slots if name != "be-2")}, len(slots))
        if step >= 20:
            had += gpus[0].plans["be-2"].time(now, now + 70 * MS) / (40 * 70 * MS)
        now += 70 * MS
    assert had == pytest.approx(0.1, abs=0.02)


@pytest.mark.parametrize("hp_seconds", [0.1, 0.3, 0.5, 2.0, 5.0, 10.0])
def test_a_job_goes_on_after_hp_was_busy_on_one_of_its_gpus(hp_seconds: float) -> None:
    node = Node({"be-0": 0.0, "be-1": 0.0}, {"be-0": 0.0, "be-1": 0.0})
    progressed = False
    real = node.agreement.progressed
    node.agreement.progressed = lambda job, now_ns: None  # type: ignore[method-assign]
    began, last, longest = node.now, node.now, 0
    for now in node.run(hp_seconds + 20.0):
        busy = 3_000 * MS <= node.now - began < (3_000 + hp_seconds * 1_000) * MS
        node.left[1] = 0.0 if busy else 1.0
        progressed = not busy and all("be-0" in holders for holders in now)
        if progressed:
            real("job", node.now)
            last = node.now
        elif not busy:
            longest = max(longest, node.now - max(last, began + round((3_000 + hp_seconds * 1_000) * MS)))
    assert longest < 4_200 * MS


@pytest.mark.parametrize("every", [11, 40, 95])
def test_a_job_that_stops_and_begins_again_and_again_idles_no_gpu(every: int) -> None:
    node = Node({"be-0": 0.0, "be-1": 0.0, "be-2": 0.0}, {"be-0": 0.0, "be-1": 0.0})
    shares(node)
    first, second = parts(node, 4.0, {3: stop(node, 0, "be-0"), 5: begin(node, 0, "be-0")}, every)
    assert sum(first.values()) > 0.97
    assert first["be-1"] == pytest.approx(first["be-2"], abs=0.05)
    assert sum(second.values()) > 0.97


@pytest.mark.parametrize("every", [11, 40, 95])
def test_a_slot_beside_a_job_that_stops_and_begins_again_and_again_idles_no_gpu(every: int) -> None:
    node = Node({"be-0": 0.0, "be-1": 0.0, "be-2": 0.0}, {"be-0": 0.0, "be-1": 0.0})
    shares(node)
    events = {
        3: stop(node, 0, "be-1"),
        5: begin(node, 0, "be-1"),
        7: stop(node, 1, "be-1"),
        8: begin(node, 1, "be-1"),
    }
    first, second = parts(node, 4.0, events, every)
    assert sum(first.values()) > 0.97
    assert first["be-0"] == pytest.approx(1 / 3, abs=0.03)
    assert first["be-2"] > 0.3
    assert second["be-0"] == pytest.approx(1 / 3, abs=0.03)
    assert second["be-1"] > 0.55


def test_a_turn_that_is_handed_back_beside_a_job_passes_to_others_at_once() -> None:
    node = Node({"be-0": 0.2, "be-1": 0.4, "be-2": 0.4}, {"be-0": 0.2})
    shares(node)
    for _ in node.run(1.0):
        if node.turns[0].plans["be-1"].has_turn(node.now):
            break
    stop(node, 0, "be-1")()
    assert node.turns[0].plans["be-2"].has_turn(node.now)
    assert node.turns[0].plans["be-2"].has_turn(node.now + 10 * MS)


def test_slots_beside_two_jobs_have_the_time_that_the_jobs_leave() -> None:
    jobs = {"a": "first", "b": "second"}
    both = Node({"a": 0.0, "x": 0.0}, {"a": 0.0, "b": 0.0}, {"b": 0.0, "y": 0.0, "z": 0.0}, jobs=jobs)
    parts(both, 1.0, {}, 1)
    found = parts(both, 4.0, {}, 1)
    assert found[0] == pytest.approx({"a": 0.5, "x": 0.5}, abs=0.03)
    assert found[2] == pytest.approx({"b": 1 / 3, "y": 1 / 3, "z": 1 / 3}, abs=0.03)
    one = Node({"a": 0.6, "x": 0.0}, {"a": 0.0, "b": 0.3}, {"b": 0.3, "y": 0.0}, jobs=jobs)
    parts(one, 1.0, {}, 1)
    assert parts(one, 4.0, {}, 1)[2] == pytest.approx({"b": 0.3, "y": 0.7}, abs=0.03)


def test_a_job_stays_below_its_limit_when_hp_stops() -> None:
    node = Node({"be-0": 0.0, "be-1": 0.0}, {"be-0": 0.0}, jobs={"be-0": "job"})
    node.limits["be-0"] = 0.3
    node.left = [0.4, 0.4]
    used = [0.0]
    for _ in node.run(3.0):
        used.append(used[-1] + STEP_NS * 0.4 * node.turns[1].plans["be-0"].has_turn(node.now))
    node.left = [1.0, 1.0]
    for _ in node.run(3.0):
        used.append(used[-1] + STEP_NS * node.turns[1].plans["be-0"].has_turn(node.now))
    second = 1_000 * MS // STEP_NS
    seconds = [used[at + second] - used[at] for at in range(second, len(used) - second, 20)]
    assert max(seconds) < 0.34e9
    assert seconds[-1] == pytest.approx(0.3e9, abs=0.02e9)


class Judged(Node):
    """The job progresses only while it has the turn on both GPUs, as a collective does."""

    def __init__(self, *requests: dict[str, float]) -> None:
        super().__init__(*requests)
        self.ran = False

    def progresses(self, number: int, name: str) -> bool:
        return self.ran


def test_a_job_that_begins_again_after_a_pause_has_its_window_soon() -> None:
    for pause in (3, 5, 7, 9, 11):
        node = Judged({"be-0": 0.0, "be-1": 0.0}, {"be-0": 0.0, "be-1": 0.0})
        node.ran = True
        parts(node, 2.0, {}, 1)
        node.ran = False
        for number in (0, 1):
            stop(node, number, "be-0")()
        parts(node, float(pause), {}, 1)
        for number in (0, 1):
            begin(node, number, "be-0")()
        began = node.now
        for now in node.run(3.0):
            if all(holders == {"be-0"} for holders in now):
                break
        assert node.now - began < 300 * MS, pause


def test_others_have_the_time_of_a_job_that_makes_no_progress() -> None:
    node = Judged({"be-0": 0.0, "be-1": 0.0, "be-2": 0.0}, {"be-0": 0.0, "be-1": 0.0})
    parts(node, 4.2, {}, 1)
    first, second = parts(node, 3.0, {}, 1)
    assert first["be-1"] + first["be-2"] > 0.97
    assert second["be-1"] > 0.97
