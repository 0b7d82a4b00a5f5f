"""How much of a GPU's memory is kept free for hp: as much as hp takes while somebody leaves.

The agent learns by how much hp has grown within the time that leaving takes. A growth long ago counts less: a service
that grows while it loads may never grow again, but a cache that has grown in minutes does.
"""

from collections import deque

_HALF_LIFE_SECONDS = 300.0
_MARGIN = 1.25
""" hp may grow a little faster than ever before. """


class Reserve:
    """The reserve of one GPU.

    Args:
        least: in bytes, while a slot of hp is held.
    """

    def __init__(self, least: int) -> None:
        self._least = least
        self._samples: deque[tuple[float, int]] = deque()
        self._growth, self._since = 0.0, 0.0
        self.value = 0
        """ In bytes, as of the last look. """
        self.rate = 0.0
        """ What hp takes a second, in bytes, as of the last look. """

    def look(self, now: float, held: int | None, most: int, leaving_seconds: float) -> int:
        """Note what hp holds; return the reserve.

        Args:
            now: in seconds.
            held: what hp holds, in bytes; None: nobody holds a slot of hp.
            most: what hp may still take.
            leaving_seconds: how long it takes until somebody has left.
        """
        if held is None:
            self._samples.clear()
            self._growth, self.rate, self.value = 0.0, 0.0, 0
            return 0
        self._samples.append((now, held))
        while len(self._samples) > 1 and self._samples[0][0] < now - leaving_seconds:
            self._samples.popleft()
        growth = held - min(each for _, each in self._samples)
        self.rate = growth / leaving_seconds if leaving_seconds else 0.0
        faded = self._growth * 0.5 ** ((now - self._since) / _HALF_LIFE_SECONDS)
        self._growth, self._since = max(float(growth), faded), now
        self.value = max(0, min(max(self._least, round(self._growth * _MARGIN)), most))
        return self.value
