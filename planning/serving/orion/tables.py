"""The figures of one list of services on every part that GPUs of the given types can have."""

from collections.abc import Sequence
from dataclasses import dataclass

from .capacities import Capacities, expected_slowdown
from .partitions import Cut, cuts
from .services import GpuType, Service

Whole: Cut = (100,)


@dataclass(frozen=True, slots=True)
class Care:
    """How thorough a search is.

    Attributes:
        margin: predicted misses must stay below this part of the misses that an objective allows.
        steps: of the predictions that decide.
        shapes: for one number of GPUs, so many shapes with the most to spare are looked at.
        checks: for one number of GPUs, at most so many layouts are checked.
    """

    margin: float
    steps: int
    shapes: int
    checks: int


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of part: a share of a GPU of one type that is cut in one way."""

    gpu: GpuType
    cut: Cut
    share: int


class Tables:
    """Capacities of services on parts.

    Attributes:
        margin: the predicted misses that a plan may have, as a part of those that objectives allow.
        care: how thorough the search is.
        services: those with requests, by objective and name.
        kinds: the kinds of part.
        cuts: the ways to cut a GPU, by type.
        capacity: requests/s that a service alone can do, by service and kind.
        rates: requests/s, by service.
        memory_mb: what a service itself needs, by service and kind.
        least: how many GPUs each service needs at least, by type and cut.
        slowdown: what is expected beside neighbours, by service and kind.
    """

    def __init__(self, services: Sequence[Service], gpus: Sequence[GpuType], figures: Capacities, care: Care) -> None:
        wanted = (service for service in services if service.rate > 0)
        self.services = sorted(wanted, key=lambda service: (service.objective_ms, service.name))
        self.gpus = gpus
        self.figures = figures
        self.care = care
        self.margin = care.margin
        self.cuts = [self._cuts(gpu) for gpu in gpus]
        self.kinds = [
            Kind(gpu, cut, share)
            for gpu, ways in zip(gpus, self.cuts, strict=True)
            for cut in ways
            for share in sorted(set(cut))
        ]
        self._place = {(kind.gpu.name, kind.cut, kind.share): place for place, kind in enumerate(self.kinds)}
        self.slowdown = [[self._slow(service, kind) for kind in self.kinds] for service in self.services]
        self.capacity = [
            [
                figures.alone(service, kind.gpu.name, kind.share, slow, care.margin)
                for kind, slow in zip(self.kinds, slows, strict=True)
            ]
            for service, slows in zip(self.services, self.slowdown, strict=True)
        ]
        self.least = {
            (gpu.name, cut): self._least(gpu, cut) for gpu, ways in zip(gpus, self.cuts, strict=True) for cut in ways
        }
        self.rates = [service.rate for service in self.services]
        self.memory_mb = [[_memory(service, kind) for kind in self.kinds] for service in self.services]
        self._together: dict[tuple[int, int, int], float] = {}

    def kind(self, gpu: GpuType, cut: Cut, share: int) -> int:
        """Return the number of a kind of part."""
        return self._place[gpu.name, cut, share]

    def together(self, one: int, other: int, kind: int) -> float:
        """Return the sum of loads that two services can have on a part of one kind."""
        key = (one, other, kind)
        if key not in self._together:
            part = self.kinds[kind]
            slow = max(self.slowdown[one][kind], self.slowdown[other][kind])
            self._together[key] = self.figures.together(
                self.services[one], self.services[other], part.gpu.name, part.share, slow, self.margin
            )
        return self._together[key]

    def _least(self, gpu: GpuType, cut: Cut) -> list[float]:
        """Return how many GPUs of one type, cut in one way, each service needs at least."""
        kinds = [(self.kind(gpu, cut, share), share) for share in sorted(set(cut))]
        found = []
        for service, capacities in zip(self.services, self.capacity, strict=True):
            best = max(capacities[kind] / share for kind, share in kinds)
            found.append(service.rate / (best * 100) if best else float("inf"))
        return found

    def _slow(self, service: Service, kind: Kind) -> float:
        others = list(kind.cut)
        others.remove(kind.share)
        return expected_slowdown(kind.gpu, self.services, service, others, kind.share)

    def _cuts(self, gpu: GpuType) -> list[Cut]:
        sizes = gpu.part_sizes
        if sizes is None:
            measured = [
                set(service.profiles[gpu.name].shares) for service in self.services if gpu.name in service.profiles
            ]
            sizes = tuple(sorted(set.intersection(*measured))) if measured else ()
        return cuts((*sizes, 100), gpu.parts_per_gpu)


def _memory(service: Service, kind: Kind) -> float:
    profile = service.profiles.get(kind.gpu.name)
    return float("inf") if profile is None else profile.memory_mb
