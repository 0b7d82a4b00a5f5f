"""The limits of hp slots: decides when an hp slot that uses its whole limit may launch. turns.py has the limits of be.

A limit is a ceiling over one second. Two numbers decide. What the slot has used in the last second must stay below what
its limit allows in a second. So a slot that uses little never waits, and a burst after a pause runs on until the time
of the second is used. And a balance grows by what the limit allows and falls by what was used. It stays small while the
slot is held. So a slot that always has work settles exactly at its limit, with short pauses.

What counts is the time in which the slot was busy. So work that runs on after a pause has begun counts, too, as a debt.

An hp with a request below 1 leaves be a floor: it launches nothing in the part of each cycle in which be's gate is open
however busy hp is. If both ran there, be would have half of its floor.

Refused: one allowance for each second. A slot would use it at once, and then wait for half a second.
"""

from collections.abc import Mapping
from types import MappingProxyType

from orion.hook import layout
from orion.node_agent.pages.plans import Plan
from orion.node_agent.sharing.joint_parts import Due, JointParts
from orion.node_agent.sharing.last_second import SECOND_NS, LastSecond

PLAN_NS = 750_000_000
""" How long a plan holds that the agent does not renew. """

_SLACK_NS = 25_000_000
""" The window's bound begins to act when so much is left, and the balance may be so large while the slot is held. """
_REACH_NS = 150_000_000
""" The balance acts within about this time: several checks and cycles, because checks come at any point of a cycle. """
_DEBT_MOST_NS = 2_000_000_000
_MUCH = 0.125
""" What a slot uses of its limit if its job is held on all of its GPUs together (joint_parts.py). """
_CYCLE_NS = 50_000_000
""" A slot at its limit pauses once in so long. """


_NO_JOBS: Mapping[str, str] = MappingProxyType({})
_FLOOR_CYCLE_NS = layout.FLOOR_CYCLE_MS * 1_000_000


class Ceiling:
    """What one hp slot has used, and when it may launch."""

    def __init__(self) -> None:
        self._second = LastSecond()
        self._since_ns = 0
        self._balance_ns = float("inf")
        """ What the limit has allowed, less what was used: at most a second's time, as at the beginning. """
        self.rate = 0.0
        """ The part of the time since the check before in which the slot was busy. """
        self.uses_much = False
        """ So much that it waits where its job waits on another GPU. """
        self._part = 1.0
        self._plan: Plan | None = None
        """ What the latest check has decided. """

    @property
    def active(self) -> bool:
        """Whether the slot was busy in the last second."""
        return self._second.used

    @property
    def part(self) -> float:
        """The part of each cycle in which the slot may launch, as the latest check has found."""
        return self._part

    def look(self, now_ns: int, used_ns: int, limit: float) -> None:
        """Note what the slot has used since the previous check, and find in which part of each cycle it may launch.

        Args:
            now_ns: from CLOCK_MONOTONIC.
            used_ns: for how long the slot was busy.
            limit: the part of the time that it may be busy, 0 to 1.
        """
        since, self._since_ns = self._since_ns or now_ns, now_ns
        used_ns = min(used_ns, now_ns - since)
        self.rate = used_ns / max(1, now_ns - since)
        self._second.add(since, now_ns, used_ns)
        balance = self._balance_ns + limit * (now_ns - since) - used_ns
        used_in_second = self._second.used_ns
        self.uses_much = used_in_second > limit * SECOND_NS * _MUCH
        if used_in_second < limit * SECOND_NS / 2:  # so much that the slot need not wait
            most = max(limit * SECOND_NS, (1 - limit) * _REACH_NS)
        else:
            most = _SLACK_NS if self._plan else limit * SECOND_NS
        self._balance_ns = max(-_DEBT_MOST_NS, min(balance, most))
        left = limit * (SECOND_NS + 2 * _SLACK_NS) - used_in_second
        # The balance falls and rises in each cycle, and checks come at any time of one. Its value at the begin counts.
        phase_ns = now_ns % _CYCLE_NS
        allowed_ns = self._plan.time(now_ns - phase_ns, now_ns) - limit * phase_ns if self._plan else 0
        slack = min(_SLACK_NS, limit * SECOND_NS / 2)
        self._part = max(0.0, min(limit + (self._balance_ns + allowed_ns) / _REACH_NS, left / slack, 1.0))

    def plan(self, now_ns: int, parts: tuple[float, float] | None) -> Plan | None:
        """Return when the slot may launch; None: at any time.

        Args:
            now_ns: of the latest check.
            parts: what its job may use of this cycle and of later ones, if the job uses several GPUs.
        """
        now, later = parts or (self._part, self._part)
        begin = now_ns - now_ns % _CYCLE_NS
        turn, end = (begin, begin + round(now * _CYCLE_NS)), begin + _CYCLE_NS
        plan = Plan(turn, (end, end + round(later * _CYCLE_NS)), _CYCLE_NS, now_ns + PLAN_NS)
        self._part = min(now, later)
        self._plan = plan if self._part < 1 else None
        return self._plan


class Ceilings:
    """The limits of the hp slots of one GPU.

    Args:
        gpu: its UUID.
        joint: what the GPUs agree on; shared by all of them.
    """

    def __init__(self, gpu: str = "", joint: JointParts | None = None) -> None:
        self._gpu, self._joint = gpu, joint or JointParts()
        self._slots: dict[str, Ceiling] = {}
        self.plans: dict[str, Plan] = {}
        """ By slot; a slot that is not here may launch at any time. """
        self.watched = False
        """ Whether a slot that has a limit has clients: it may begin to work without a message. """

    @property
    def active(self) -> bool:
        """Whether a slot that has a limit has used the GPU in the last second, so that checks must be frequent."""
        return any(each.active for each in self._slots.values())

    def look(
        self,
        now_ns: int,
        used_ns: Mapping[str, int],
        limits: Mapping[str, float],
        sure: float = 1.0,
        jobs: Mapping[str, str] = _NO_JOBS,
    ) -> None:
        """Note what the slots have used since the previous check, and plan.

        Args:
            now_ns: from CLOCK_MONOTONIC.
            used_ns: for how long each slot was busy; without entry: it has no clients.
            limits: of all hp slots, as parts of the time; 1: no limit.
            sure: the part of the time that hp is sure of if it leaves the rest to be now; 1: it leaves nothing.
            jobs: of the slots, by slot.
        """
        limited = {name: limit for name, limit in limits.items() if limit < 1}
        self._slots = {name: self._slots.get(name) or Ceiling() for name in limited}
        self.watched = not used_ns.keys().isdisjoint(limited)
        floor = _leaving_a_floor(now_ns, sure) if sure < 1 else None
        for name, each in self._slots.items():
            each.look(now_ns, used_ns.get(name, 0), limited[name])
        together = {jobs[name]: each for name, each in self._slots.items() if jobs.get(name) and each.uses_much}
        cycle = now_ns // _CYCLE_NS
        self._joint.note(self._gpu, {job: Due(each.part, each.rate, cycle) for job, each in together.items()})
        agreed = {id(each): self._joint.parts(job, cycle) for job, each in together.items()}
        found = {name: each.plan(now_ns, agreed.get(id(each))) for name, each in self._slots.items()}
        plans = {name: plan for name, plan in found.items() if plan is not None and self._slots[name].part < sure}
        # A limit that leaves be less than its floor leaves the floor instead.
        self.plans = {name: plan for name in limits if (plan := plans.get(name) or floor)}

    def rest(self) -> None:
        """Let no slot wait."""
        self.plans = {}
        self._joint.note(self._gpu, {})


def _leaving_a_floor(now_ns: int, sure: float) -> Plan:
    """Return when hp may launch that leaves be its floor: outside the part of each cycle in which be's gate opens."""
    begin = now_ns - now_ns % _FLOOR_CYCLE_NS
    return Plan((0, 0), (begin, begin + round(sure * _FLOOR_CYCLE_NS)), _FLOOR_CYCLE_NS, now_ns + PLAN_NS)
