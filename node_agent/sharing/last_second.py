"""How much of the last second a slot used: what its limit is compared with.

The agent notes the use between two checks as one number. A check that lies in the second in part counts in part. If it
counted as a whole or not at all, the second would be longer or shorter by a check, and a slot at its limit would swing.
"""

from collections import deque

SECOND_NS = 1_000_000_000


class LastSecond:
    """The use of one slot."""

    def __init__(self) -> None:
        self._used: deque[tuple[int, int, float]] = deque()
        """ Begin and end of each time between two checks, and what was used. """
        self._sum_ns = 0.0

    def __len__(self) -> int:
        return len(self._used)

    @property
    def used(self) -> bool:
        """Whether anything was used."""
        return self._sum_ns > 0

    def add(self, since_ns: int, now_ns: int, used_ns: float) -> None:
        """Note what was used between two checks."""
        self._used.append((since_ns, now_ns, used_ns))
        while self._used[0][1] <= now_ns - SECOND_NS:
            self._used.popleft()
        # Adding up again costs little, and leaves no rounding errors behind.
        self._sum_ns = sum(used for _, _, used in self._used)

    @property
    def used_ns(self) -> float:
        """What was used in the second before the latest call of `add`."""
        if not self._used:
            return 0.0
        begin, end, used = self._used[0]
        outside = max(0, self._used[-1][1] - SECOND_NS - begin)
        return self._sum_ns - (used * outside / (end - begin) if end > begin else 0.0)

    def begin_ns(self, span_ns: int) -> float:
        """Return what was used in the first ``span_ns`` of the second before the latest call of `add`."""
        first = self._used[-1][1] - SECOND_NS if self._used else 0
        parts = [(used, min(end, first + span_ns) - max(begin, first), end - begin) for begin, end, used in self._used]
        return sum(used * inside / whole for used, inside, whole in parts if inside > 0)
