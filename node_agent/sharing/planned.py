"""The planned turns of all slots of a GPU: who has the turn, and which turns belong to the cycle under way."""

from dataclasses import dataclass, field

from orion.node_agent.pages.plans import Plan
from orion.node_agent.sharing.around_windows import Turn
from orion.node_agent.sharing.turn_lengths import ALTERNATING


@dataclass(frozen=True)
class Planned:
    """Plans that belong together.

    Args:
        plans: by slot, and all end at the same time; a slot that is not here launches when it likes.
        boundary_ns: when the planned cycle begins and repeats; until then the turns of `Plan.turn` hold.
        length_ns: of the cycle.
    """

    plans: dict[str, Plan] = field(default_factory=dict)
    boundary_ns: int = 0
    length_ns: int = ALTERNATING.cycle_ns

    def holder(self, now_ns: int) -> str | None:
        """Return the slot that has the turn."""
        for name, plan in self.plans.items():
            if plan.has_turn(now_ns):
                return name
        return None

    def end_of_cycle(self, now_ns: int) -> int:
        """Return when the cycle under way ends."""
        if not self.plans:
            return now_ns
        past = (now_ns - self.boundary_ns) // self.length_ns + 1
        return self.boundary_ns + max(0, past) * self.length_ns

    def under_way(self, now_ns: int) -> dict[str, Turn]:
        """Return the turns of the cycle under way; those that have passed and those to come, too."""
        return {name: self.turn_under_way(name, now_ns) for name in self.plans}

    def turn_under_way(self, name: str, now_ns: int) -> Turn:
        """Return a slot's turn in the cycle under way."""
        plan = self.plans[name]
        begin, end = plan.next
        if now_ns < self.boundary_ns or begin == end:
            return plan.turn
        past = (now_ns - self.boundary_ns) // plan.cycle_ns * plan.cycle_ns
        return begin + past, end + past

    def until(self, now_ns: int) -> int:
        """Return the end of the plans, or ``now_ns`` if that is earlier."""
        return min(now_ns, next(iter(self.plans.values())).until_ns) if self.plans else now_ns
