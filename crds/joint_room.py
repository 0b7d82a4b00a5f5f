"""Whether one node has room for all requests of a claim together, where each of them has room by itself.

The scheduler places the requests one after the other on one node, and tries other GPUs for the earlier ones if a later
one finds none. Two requests may get the same GPU; the GPUs of one request differ. This module does the same, with a
bound on its work: what it has not finished, it does not assert.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from orion.crds.room_of_gpus import Gpu, Lack, Request, after, compared, in_words, missing

_STEPS = 2_000
""" So many placements of a request are tried, on all nodes together. """


@dataclass
class _Search:
    requests: Sequence[Request]
    steps: int = _STEPS
    furthest: int = 0
    """ How many requests were placed at most. """
    left: tuple[Gpu, ...] = ()
    """ The GPUs of that node after that. """

    def fits(self, gpus: tuple[Gpu, ...], done: int = 0) -> bool:
        """Return whether the requests that are not yet placed have room on these GPUs of one node."""
        if done > self.furthest or not self.left:
            self.furthest, self.left = done, gpus
        if done == len(self.requests):
            return True
        request = self.requests[done]
        for chosen in _choices(gpus, request):
            self.steps -= 1
            if self.steps < 0:
                return False
            rest = tuple(after(gpu, request) if number in chosen else gpu for number, gpu in enumerate(gpus))
            if self.fits(rest, done + 1):
                return True
        return False


def lacking_together(gpus: Sequence[Gpu], requests: Sequence[Request]) -> str:
    """Return one sentence if no node has room for all requests together; empty: one has, or it is not certain.

    Args:
        gpus: the GPUs that Orion offers.
        requests: those of one claim; each has room by itself.
    """
    if len(requests) < 2:
        return ""
    nodes: dict[str, list[Gpu]] = {}
    for gpu in gpus:
        nodes.setdefault(gpu.node, []).append(gpu)
    search = _Search(requests)
    if any(search.fits(tuple(of_node)) for of_node in nodes.values()) or search.steps < 0:
        return ""
    without = requests[search.furthest]
    lack = compared(search.left, without)
    names = ", ".join(each.name for each in requests[: search.furthest])
    what = in_words(lack) if isinstance(lack, Lack) else f"request {without.name}"
    after_others = f"with {names} placed, {what}" if names else what
    return f"each request of the claim has room by itself, but no node has room for all together: {after_others}"


def _choices(gpus: Sequence[Gpu], request: Request) -> Iterator[tuple[int, ...]]:
    """Yield the numbers of GPUs that a request could get, in the order in which the scheduler tries them."""
    fitting = [number for number, gpu in enumerate(gpus) if not any(missing(gpu, request))]
    for chosen in combinations(fitting, request.count):
        name = request.in_common
        if not name or len({str(gpus[number].attributes[name]) for number in chosen}) == 1:
            yield chosen
