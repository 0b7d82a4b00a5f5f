"""Where a demand fits: which resources of each server are free during a round, and which GPUs a demand gets.

Scattered: a demand takes the first GPUs that have room (first fit, as in Synergy's simulator). The fastest servers come
first, and servers of equal speed stay in their order. Packed: a job of several GPUs takes the fullest server that has
room for all its GPUs, and otherwise GPUs of the fullest servers. Free resources mostly shrink while jobs are placed.
So `FreeResources` keeps for each demand the first server that may have room for one of its GPUs; `give_back` corrects
that server.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TypeVar

from .resources import Demand, Parts, Server

_ROUNDING = 1e-9  # the largest rounding error after resources were taken and given back as floating-point numbers
_ENOUGH = 1 - _ROUNDING

Asking = TypeVar("Asking")


@lru_cache(maxsize=4)
def _one_gpu(servers: int) -> tuple[Parts, ...]:
    """Return, for each server, the place that has one GPU of that server."""
    return tuple(((server, 1),) for server in range(servers))


class FreeResources:
    """The free resources of each server; each round has its own object.

    Args:
        servers: what the servers have. A server of speed 0 gives no GPUs, because training would stand still there.
        is_packed: whether jobs go to the fullest servers.
    """

    __slots__ = (
        "_first", "_gpu_memory_gb", "_one_gpu", "_position", "_walk",
        "cpus", "gpus", "gpus_free", "gpus_in_all", "is_packed", "memory_gb", "speeds", "storage_mbps",
    )  # fmt: skip

    def __init__(self, servers: Sequence[Server], *, is_packed: bool = False) -> None:
        self.gpus = [server.gpus if server.speed > 0 else 0 for server in servers]
        self.cpus = [server.cpus for server in servers]
        self.memory_gb = [server.memory_gb for server in servers]
        self.storage_mbps = [server.storage_mbps for server in servers]
        self.speeds = [server.speed for server in servers]
        self.gpus_free = self.gpus_in_all = sum(self.gpus)
        self.is_packed = is_packed
        self._gpu_memory_gb = [server.gpu_memory_gb for server in servers]
        self._walk = sorted(range(len(servers)), key=lambda server: -servers[server].speed)
        self._position = [0] * len(servers)
        for position, server in enumerate(self._walk):
            self._position[server] = position
        self._first: dict[Demand, int] = {}
        self._one_gpu = _one_gpu(len(servers))

    def room(self, server: int, demand: Demand) -> int:
        """Return for how many GPUs of a demand the server has room, with the CPUs and memory of each GPU."""
        room = self.gpus[server]
        if not self.suits(server, demand):
            return 0
        if demand.cpus_per_gpu:
            room = min(room, int(self.cpus[server] / demand.cpus_per_gpu + _ROUNDING))
        if demand.memory_gb_per_gpu:
            room = min(room, int(self.memory_gb[server] / demand.memory_gb_per_gpu + _ROUNDING))
        if demand.storage_mbps_per_gpu:
            room = min(room, int(self.storage_mbps[server] / demand.storage_mbps_per_gpu + _ROUNDING))
        return room

    def suits(self, server: int, demand: Demand) -> bool:
        """Return whether a server's GPUs have the memory that a demand needs."""
        return demand.gpu_memory_gb <= self._gpu_memory_gb[server]

    def find(self, demand: Demand) -> Parts | None:
        """Return the GPUs that fit a demand, or None. This does not take them."""
        gpus = demand.gpus
        if gpus > self.gpus_free:
            return None
        if self.is_packed:
            return self._find_packed(demand)
        if gpus > 1:
            return self._find_several(demand)
        server = self._find_one(demand)
        return None if server is None else self._one_gpu[server]

    def _find_one(self, demand: Demand) -> int | None:
        """Return the first server with room for a demand of one GPU."""
        walk, gpus = self._walk, self.gpus
        begin = position = self._first.get(demand, 0)
        end = len(walk)
        while position < end:
            server = walk[position]
            if (
                gpus[server]
                and self.cpus[server] >= demand.cpus * _ENOUGH
                and self.memory_gb[server] >= demand.memory_gb * _ENOUGH
                and self.storage_mbps[server] >= demand.storage_mbps * _ENOUGH
                and self._gpu_memory_gb[server] >= demand.gpu_memory_gb
            ):
                break
            position += 1
        if position > begin:
            self._first[demand] = position
        return server if position < end else None

    def _find_several(self, demand: Demand) -> Parts | None:
        parts: list[tuple[int, int]] = []
        wanted, first = demand.gpus, self._first.get(demand, 0)
        for position in range(first, len(self._walk)):
            server = self._walk[position]
            room = self.room(server, demand) if self.gpus[server] else 0
            if room <= 0:
                if not parts:
                    self._first[demand] = position + 1
                continue
            parts.append((server, min(room, wanted)))
            wanted -= min(room, wanted)
            if not wanted:
                return tuple(parts)
        return None

    def _find_packed(self, demand: Demand) -> Parts | None:
        candidates = [
            (self.gpus[server], server, self.room(server, demand)) for server in self._walk if self.gpus[server]
        ]
        whole = [(free, server) for free, server, room in candidates if room >= demand.gpus]
        if whole:
            return ((min(whole)[1], demand.gpus),)
        parts: list[tuple[int, int]] = []
        wanted = demand.gpus
        for _, server, room in sorted(candidates):
            count = min(room, wanted)
            if count > 0:
                parts.append((server, count))
                wanted -= count
            if not wanted:
                return tuple(sorted(parts))
        return None

    def take_first(self, demand: Demand) -> Parts | None:
        """Find the GPUs that fit a demand, and take them."""
        parts = self.find(demand)
        if parts is not None:
            self._change(parts, demand, -1)
        return parts

    def take_in_turn(
        self, jobs: Iterable[Asking], asked: Callable[[Asking], Demand]
    ) -> Iterator[tuple[Asking, Demand, Parts | None]]:
        """Yield each job with its demand and the first GPUs that fit it, which are taken; end when no GPU is free.

        This innermost loop of a round from an empty cluster does what `_find_one` does, without a call for each job.
        """
        gpus, cpus, memory_gb, storage_mbps = self.gpus, self.cpus, self.memory_gb, self.storage_mbps
        walk, first, gpu_memory_gb = self._walk, self._first, self._gpu_memory_gb
        for job in jobs:
            demand = asked(job)
            if demand.gpus > 1 or self.is_packed:
                yield job, demand, self.take_first(demand)
            else:
                for position in range(first.get(demand, 0), len(walk)):
                    server = walk[position]
                    if (
                        gpus[server]
                        and cpus[server] >= demand.cpus * _ENOUGH
                        and memory_gb[server] >= demand.memory_gb * _ENOUGH
                        and storage_mbps[server] >= demand.storage_mbps * _ENOUGH
                        and gpu_memory_gb[server] >= demand.gpu_memory_gb
                    ):
                        gpus[server] -= 1
                        cpus[server] -= demand.cpus
                        memory_gb[server] -= demand.memory_gb
                        storage_mbps[server] -= demand.storage_mbps
                        self.gpus_free -= 1
                        first[demand] = position
                        yield job, demand, self._one_gpu[server]
                        break
                else:
                    first[demand] = len(walk)
                    yield job, demand, None
            if not self.gpus_free:
                return

    def copy(self) -> "FreeResources":
        """Return a copy that can be changed independently."""
        other = FreeResources.__new__(FreeResources)
        for name in ("gpus", "cpus", "memory_gb", "storage_mbps", "_first"):
            setattr(other, name, getattr(self, name).copy())
        same = ("gpus_free", "gpus_in_all", "is_packed", "speeds", "_gpu_memory_gb", "_one_gpu", "_position", "_walk")
        for name in same:
            setattr(other, name, getattr(self, name))
        return other

    def exchange(self, parts: Parts, has: Demand, wanted: Demand) -> bool:
        """Give a demand back and take another one on the same GPUs, and return True, if there is room for it."""
        self._change(parts, has, 1)
        fits = all(self.room(server, wanted) >= count for server, count in parts)
        self._change(parts, wanted if fits else has, -1)
        if fits:
            self._begin_at(parts)
        return fits

    def take(self, parts: Parts, demand: Demand) -> None:
        """Take a demand's resources on the servers of `parts`."""
        self._change(parts, demand, -1)

    def give_back(self, parts: Parts, demand: Demand) -> None:
        """Give back what `take` took."""
        self._change(parts, demand, 1)
        self._begin_at(parts)

    def _begin_at(self, parts: Parts) -> None:
        """Let each search begin no later than at these servers, because they have more room now."""
        earliest = min(self._position[server] for server, _ in parts)
        for each, first in self._first.items():
            if first > earliest:
                self._first[each] = earliest

    def _change(self, parts: Parts, demand: Demand, sign: int) -> None:
        for server, count in parts:
            change = sign * count
            self.gpus[server] += change
            self.cpus[server] += change * demand.cpus_per_gpu
            self.memory_gb[server] += change * demand.memory_gb_per_gpu
            self.storage_mbps[server] += change * demand.storage_mbps_per_gpu
            self.gpus_free += change
