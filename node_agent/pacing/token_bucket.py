"""Token buckets: how much of something a tenant may ask for before it has to wait."""

import time
from collections.abc import Callable


class TokenBucket:
    """Lets ``burst`` through at once and ``per_second`` from then on.

    Args:
        burst: how many tokens it holds when full.
        per_second: how many come back each second.
        clock: seconds, monotonic.
    """

    def __init__(self, burst: int, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.burst = burst
        self.per_second = per_second
        self._clock = clock
        self.fill()

    def fill(self) -> None:
        """Give everything back at once."""
        self._tokens = float(self.burst)
        self._at = self._clock()

    def take(self) -> float:
        """Take a token and return 0, or take none and return the seconds until there will be one."""
        now = self._clock()
        self._tokens = min(self.burst, self._tokens + (now - self._at) * self.per_second)
        self._at = now
        if self._tokens >= 1:
            self._tokens -= 1
            return 0.0
        return (1 - self._tokens) / self.per_second
