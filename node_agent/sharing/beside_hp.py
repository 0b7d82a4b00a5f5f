"""Which part of each slot's turns hp left to it.

hp may work at the same times of each cycle, so that it takes much from the turns of one slot and little from those of
another one. Times at which the agent does not know of hp count as the same part of all turns.
"""

from collections.abc import Collection, Mapping, Sequence

from orion.node_agent.pages.plans import Plan


class BesideHp:
    """The turns since the last check."""

    def __init__(self) -> None:
        self._passed: list[tuple[Mapping[str, Plan], int, int]] = []

    def note(self, plans: Mapping[str, Plan], since_ns: int, until_ns: int) -> None:
        """Note the plans of a time that has passed."""
        if plans and since_ns < until_ns:
            self._passed.append((plans, since_ns, until_ns))

    def parts(
        self, part: float, since_ns: int, now_ns: int, closed: Sequence[tuple[int, int]], dividing: Collection[str]
    ) -> dict[str, float]:
        """Return the part of each slot's turns that hp left to it, and forget the turns.

        Args:
            part: of the whole time.
            since_ns: the begin of the time.
            now_ns: the end of the time.
            closed: times at which hp left nothing; not all such times may be known.
            dividing: slots that divide all time that hp leaves, so that ``part`` is what it left of their turns;
                empty: there is time that is nobody's.
        """
        passed, self._passed = self._passed, []
        if not closed or not passed:
            return {}
        turns, left = dict[str, int](), dict[str, int]()
        for plans, since, until in passed:
            spans = [(max(begin, since), min(end, until)) for begin, end in closed if begin < until and since < end]
            for name, plan in plans.items():
                time = plan.time(since, until)
                turns[name] = turns.get(name, 0) + time
                if time:
                    left[name] = left.get(name, 0) + time - sum([plan.time(*span) for span in spans])
        if dividing:
            whole, free = (sum([each.get(name, 0) for name in dividing]) for each in (turns, left))
        else:
            whole = now_ns - since_ns
            free = whole - sum([end - max(begin, since_ns) for begin, end in closed if end > since_ns])
        usual = free / whole if whole and free > 0 else 1.0
        return {name: min(1.0, part * time / turns[name] / usual) for name, time in left.items()}
