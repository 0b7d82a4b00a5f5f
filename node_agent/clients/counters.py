"""What the metrics count of clients."""

from collections import Counter


class Counters:
    """Counters of joins, for the metrics."""

    def __init__(self) -> None:
        self.joins: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()
        self.adopted = 0
