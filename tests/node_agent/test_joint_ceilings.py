"""The limit of an hp job on two modelled GPUs, whose collectives spin until their peers run."""

from dataclasses import dataclass, field

import pytest

from orion.node_agent.sharing.ceilings import Ceiling, Ceilings
from orion.node_agent.sharing.joint_parts import Due, JointParts

MS = 1_000_000
STEP_NS = MS // 10
START_NS = 1_000_000 * MS
COMPUTE_NS, COLLECTIVE_NS = 3 * MS, MS // 5
SECONDS = 10
JOBS = {"hp-0": "pod team/server"}


@dataclass
class Rank:
    """The rank of one GPU. It launches a kernel, and a collective behind it."""

    ceilings: Ceilings
    looks_at: int
    begun: list[int] = field(default_factory=lambda: [0])
    """ How many collectives have begun, after each step. """
    used_ns: int = 0
    looked_ns: int = 0
    computes_until: int = 0
    spins: bool = False
    ended: int = 0
    """ How many collectives have ended. """

    def look(self, now: int, limit: float) -> None:
        if now >= self.looks_at:
            self.ceilings.look(now, {"hp-0": self.used_ns - self.looked_ns}, {"hp-0": limit}, jobs=JOBS)
            self.looked_ns, self.looks_at = self.used_ns, now + 25 * MS

    def may_launch(self, now: int) -> bool:
        plan = self.ceilings.plans.get("hp-0")
        return plan is None or plan.has_turn(now)

    def step(self, now: int, others_begun: int) -> None:
        """Run for a step; launch what comes next."""
        if self.spins and others_begun > self.ended:
            self.spins, self.ended, self.computes_until = False, self.ended + 1, 0
            self.used_ns += COLLECTIVE_NS
        begun = self.begun[-1]
        if not self.spins and now >= self.computes_until and self.may_launch(now):
            if self.computes_until:
                self.spins, begun = True, begun + 1
            else:
                self.computes_until = now + COMPUTE_NS
        self.begun.append(begun)
        self.used_ns += STEP_NS if self.spins or now < self.computes_until else 0


def run(limits: tuple[float, float], joint: list[JointParts]) -> list[Rank]:
    """Return the ranks after some seconds. The GPUs are checked at different times."""
    ranks = [Rank(Ceilings(f"GPU-{gpu}", each), START_NS + gpu * 11 * MS) for gpu, each in enumerate(joint)]
    for now in range(START_NS, START_NS + SECONDS * 1_000 * MS, STEP_NS):
        for rank, limit in zip(ranks, limits, strict=True):
            rank.look(now, limit)
        begun = [rank.begun[-1] for rank in ranks]
        for rank, others in zip(ranks, reversed(begun), strict=True):
            rank.step(now, others)
    return ranks


@pytest.mark.parametrize("limit", [0.3, 0.5, 0.8])
def test_a_job_computes_for_most_of_its_limit(limit: float) -> None:
    joint = JointParts()
    ranks = run((limit, limit), [joint, joint])
    computed = ranks[0].ended * COMPUTE_NS / (SECONDS * 1e9)
    assert computed > 0.75 * limit
    assert max(rank.used_ns for rank in ranks) < (limit + 0.06) * SECONDS * 1e9  # the first second has a burst


def test_the_least_limit_of_its_gpus_holds_for_a_job() -> None:
    joint = JointParts()
    ranks = run((0.8, 0.3), [joint, joint])
    assert ranks[0].ended * COMPUTE_NS / (SECONDS * 1e9) == pytest.approx(0.27, abs=0.06)


def test_what_is_agreed_holds_from_the_next_cycle_on() -> None:
    joint = JointParts()
    joint.note("GPU-0", {"job": Due(0.5, 0.5, 7)})
    assert joint.parts("job", 7) is None
    joint.note("GPU-1", {"job": Due(0.4, 0.5, 7)})
    assert joint.parts("job", 7) == (0.4, 0.4)
    joint.note("GPU-0", {"job": Due(0.3, 0.5, 7)})
    assert joint.parts("job", 7) == (0.4, 0.4)
    assert joint.parts("job", 8) == (0.4, 0.3)
    assert joint.parts("job", 10) == (0.3, 0.3), "nobody has looked in the cycle before"
    joint.note("GPU-1", {})
    assert joint.parts("job", 11) is None


def test_a_gpu_whose_checks_fail_holds_no_other_one() -> None:
    joint = JointParts()
    joint.note("GPU-0", {"job": Due(0.0, 1.0, 7)})
    joint.note("GPU-1", {"job": Due(0.4, 0.5, 22)})
    assert joint.parts("job", 22) == (0.0, 0.0)
    joint.note("GPU-1", {"job": Due(0.4, 0.5, 23)})
    assert joint.parts("job", 23) is None, "the plan of GPU-0 has ended"


def test_a_plan_that_begins_in_the_next_cycle_is_published() -> None:
    ceiling = Ceiling()
    ceiling.look(START_NS, 0, 0.5)
    plan = ceiling.plan(START_NS, (1.0, 0.4))
    assert plan is not None
    assert ceiling.part == 0.4


def test_a_job_in_debt_may_launch_the_peer_of_a_collective_that_spins() -> None:
    joint = JointParts()
    joint.note("GPU-0", {"job": Due(0.0, 1.0, 7)})
    joint.note("GPU-1", {"job": Due(0.2, 0.0, 7)})
    assert joint.parts("job", 7) == (0.05, 0.05)
    joint.note("GPU-0", {"job": Due(0.0, 0.0, 7)})
    assert joint.parts("job", 8) == (0.05, 0.0)


def test_a_gpu_of_which_a_job_uses_little_does_not_wait() -> None:
    joint = JointParts()
    busy, idle = (Ceilings(f"GPU-{gpu}", joint) for gpu in range(2))
    for now in range(START_NS, START_NS + 2_000 * MS, 25 * MS):
        busy.look(now, {"hp-0": 25 * MS}, {"hp-0": 0.5}, jobs=JOBS)
        idle.look(now, {"hp-0": MS}, {"hp-0": 0.5}, jobs=JOBS)
    assert busy.plans.keys() == {"hp-0"}
    assert not idle.plans
