"""Modelled GPUs that share jobs with a process for each GPU: who has the turn where, and what happens meanwhile."""

from collections.abc import Callable, Iterator, Mapping

from orion.node_agent.sharing.demand import Demand
from orion.node_agent.sharing.joint import Agreement
from orion.node_agent.sharing.turns import Turns

MS = 1_000_000
STEP_NS = MS // 2
GPUS = ("GPU-0", "GPU-1", "GPU-2", "GPU-3")


class Node:
    """GPUs with slots, of which some are those of jobs; all always have work but those in `idle`.

    Args:
        requests: of the slots of each GPU.
        jobs: by slot name.
    """

    check_ns = 70 * MS

    def __init__(self, *requests: dict[str, float], jobs: Mapping[str, str] = {"be-0": "job"}) -> None:
        self.requests, self.jobs = requests, jobs
        self.turns = [Turns() for _ in requests]
        self.agreement = Agreement()
        self.now = self.looked = 1_000_000 * MS
        self.idle: set[tuple[int, str]] = set()
        self.left = [1.0] * len(requests)
        """ The part of the time that hp leaves on each GPU. """
        self.limits: dict[str, float] = {}

    def look(self) -> None:
        for number, turns in enumerate(self.turns):
            demands = {name: self.demand(number, name, request) for name, request in self.requests[number].items()}
            jobs = {name: self.jobs[name] for name in demands if name in self.jobs}
            for name, job in jobs.items():
                if self.progresses(number, name):
                    self.agreement.progressed(job, self.now)
            agreed = self.agreement.windows(GPUS[number], self.now)
            windows = {name: agreed[job] for name, job in jobs.items() if job in agreed}
            turns.look(self.now, self.left[number], demands, windows=windows, joint_ns=self.agreement.cycle_ns)
            debts = turns.accounts.debts_of_jobs(jobs) if self.left[number] > 0.01 else {}
            self.agreement.note(GPUS[number], turns.accounts.due_to_jobs(self.now, jobs), len(demands), debts)

    def demand(self, number: int, name: str, request: float) -> Demand:
        """Return what a slot did since the last check, and wants."""
        working = (number, name) not in self.idle
        limit = self.limits.get(name, 1.0)
        return Demand(
            request,
            limit=limit / max(limit, self.left[number]),
            ceiling=limit,
            launched=working,
            waiting=working,
        )

    def progresses(self, number: int, name: str) -> bool:
        """Return whether a slot of a job has made progress since the last check."""
        return (number, name) not in self.idle

    def run(self, seconds: float) -> Iterator[list[set[str]]]:
        """Yield at each step who has the turn on each GPU; all slots of a GPU without plans."""
        end, next_look = self.now + seconds * 1e9, self.now
        while self.now < end:
            if self.now >= next_look:
                self.look()
                self.looked = self.now
                next_look = self.now + self.check_ns
            yield [
                {name for name in names if not turns.plans or turns.plans[name].has_turn(self.now)}
                for turns, names in zip(self.turns, self.requests, strict=True)
            ]
            self.now += STEP_NS


def shares(node: Node, seconds: float = 4.0) -> list[dict[str, float]]:
    """Return the parts of the time in which slots have turns; check that the job has its turns everywhere at once."""
    for _ in node.run(1.0):
        pass
    held: list[dict[str, float]] = [dict.fromkeys(names, 0.0) for names in node.requests]
    steps = seconds * 1e9 / STEP_NS
    for now in node.run(seconds):
        contended = [holders for number, holders in enumerate(now) if node.turns[number].plans]
        assert len({"be-0" in holders for holders in contended}) <= 1, "the job has the turn on one GPU only"
        for holders, parts in zip(now, held, strict=True):
            for name in holders:
                parts[name] += 1 / steps
    return held


def parts(node: Node, seconds: float, events: Mapping[int, Callable[[], None]], every: int) -> list[dict[str, float]]:
    """Return the parts of the time in which slots have turns, while `events` happen in each `every` milliseconds."""
    held: list[dict[str, float]] = [dict.fromkeys(names, 0.0) for names in node.requests]
    steps = seconds * 1e9 / STEP_NS
    for now in node.run(seconds):
        for holders, each in zip(now, held, strict=True):
            for name in holders:
                each[name] += 1 / steps
        milliseconds, rest = divmod(node.now, MS)
        if rest == 0 and (event := events.get(milliseconds % every)):
            event()
    return held


def stop(node: Node, number: int, name: str) -> Callable[[], None]:
    def event() -> None:
        node.idle.add((number, name))
        node.turns[number].hand_back(name, node.now)

    return event


def begin(node: Node, number: int, name: str) -> Callable[[], None]:
    def event() -> None:
        node.idle.discard((number, name))
        node.turns[number].ask(name, node.now)

    return event
