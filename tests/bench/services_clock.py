"""A clock that stands still until somebody advances it."""


class StillClock:
    """Seconds since the run's begin."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def wait_until(self, instant: float) -> None:
        self.now = max(self.now, instant)
