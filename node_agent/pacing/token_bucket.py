"""Token buckets: limit how often a tenant can cause something."""

import time
from collections.abc import Callable


class TokenBucket:
    """Gives ``burst`` tokens at once, and then ``per_second`` tokens each second.

    Args:
        burst: the number of tokens in a full bucket.
        per_second: how many tokens are added each second.
        clock: returns seconds, monotonic.
    """

    def __init__(self, burst: int, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.burst = burst
        self.per_second = per_second
        self._clock = clock
        self.fill()

    def fill(self) -> None:
        """Fill the bucket."""
        self._tokens = float(self.burst)
        self._at = self._clock()

    def take(self) -> float:
        """Take a token and return 0. If the bucket is empty, return the seconds until the next token."""
        now = self._clock()
        self._tokens = min(self.burst, self._tokens + (now - self._at) * self.per_second)
        self._at = now
        if self._tokens >= 1:
            self._tokens -= 1
            return 0.0
        return (1 - self._tokens) / self.per_second
