"""Reads clusters: Synergy's .ini, and YAML with servers of several kinds and high-priority load.

    servers:
      - {count: 16, gpus: 8, cpus: 24, memory: 500, storage: 500}         # GB, MB/s
      - {count: 2, gpus: 8, cpus: 24, memory: 500, hp: {busyCurve: [[0, 0.1], [9, 0.6]], busyPeriods: 49}}

A server with `hp` is shared: each of its GPUs has an hp tenant with the load that `hp` gives, and training runs while
the tenant is idle (`planning.sharing.harvest`). A point [hour, busy] of `busyCurve` holds until the hour of the next
point. The time 0 is midnight.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, field_validator, model_validator

from orion.crds.durations import Duration
from orion.planning.queues.resources import Server
from orion.planning.sharing.harvest import Tenant, speed_beneath
from orion.simulation import yaml_files
from orion.simulation.written import Gigabytes, SomeGigabytes, Written, checked

from .synergy_ini import MOST_SERVERS, shape

STORAGE_MBPS_PER_GPU = 62.5
""" The default if a file gives no storage: that of Synergy's servers. """
DAY_S = 86400.0

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Hour = Annotated[float, Field(ge=0, lt=24, allow_inf_nan=False)]


class _Hp(Written):
    busy: Share | None = None
    busy_curve: list[tuple[Hour, Share]] | None = Field(None, alias="busyCurve", min_length=1)
    busy_periods: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(0.0, alias="busyPeriods")
    switch: float = Tenant.switch_s
    slowdown: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 1.0
    free_memory_gb: Gigabytes | None = Field(None, alias="freeMemory")

    @field_validator("switch", mode="before")
    @classmethod
    def _seconds(cls, value: Any) -> float:
        return Duration.read(value).nanoseconds / 1e9

    @model_validator(mode="after")
    def _one_load(self) -> Self:
        if (self.busy is None) == (self.busy_curve is None):
            raise ValueError("give either busy or busyCurve")
        hours = [hour for hour, _ in self.busy_curve or []]
        if hours != sorted(set(hours)):
            raise ValueError("the hours of busyCurve must ascend")
        return self


class _Servers(Written):
    count: Annotated[int, Field(ge=1, le=MOST_SERVERS)] = 1
    gpus: Annotated[int, Field(ge=1, le=1024)]
    cpus: Positive
    memory: SomeGigabytes
    storage: Positive | None = None
    gpu: str | None = None
    hp: _Hp | None = None


class _File(Written):
    servers: list[_Servers] = Field(min_length=1)


@dataclass(frozen=True)
class Load:
    """The load of the hp tenant on each GPU of a server during a day: steps of (hour, busy), the first at hour 0."""

    steps: tuple[tuple[float, float], ...]
    busy_periods: float
    switch_s: float
    slowdown: float

    def speed(self, from_s: float, seconds: float) -> float:
        """Return the mean speed of training in a span of time."""
        if len(self.steps) == 1:
            return self._at(self.steps[0][1])
        total, now_s, end_s = 0.0, from_s, from_s + seconds
        while now_s < end_s - 1e-9:
            hour = (now_s % DAY_S) / 3600
            step = max(index for index, (begin, _) in enumerate(self.steps) if begin <= hour + 1e-12)
            until = self.steps[step + 1][0] if step + 1 < len(self.steps) else 24.0
            until_s = min(end_s, now_s + max(1e-6, (until - hour) * 3600))
            total += self._at(self.steps[step][1]) * (until_s - now_s)
            now_s = until_s
        return total / seconds

    def _at(self, busy: float) -> float:
        return speed_beneath(Tenant(busy, self.busy_periods, self.switch_s, self.slowdown))


@dataclass(frozen=True)
class Cluster:
    """Servers, and the hp load on those that are shared.

    Attributes:
        name: the name in the cluster's file.
        servers: each server without hp load, and its hp load; None: the server is not shared.
        gpu_models: the GPU models that the file gives.
    """

    name: str
    servers: tuple[tuple[Server, Load | None], ...]
    gpu_models: tuple[str, ...] = ()

    @property
    def is_shared(self) -> bool:
        """Return whether any GPU has an hp tenant."""
        return any(load is not None for _, load in self.servers)

    def at(self, seconds: float) -> Callable[[float], Sequence[Server]]:
        """Return a function that returns the servers at a time; their speeds are means of the next `seconds` seconds.

        The function returns the same object until a speed changes.
        """
        if not self.is_shared:
            fixed = tuple(server for server, _ in self.servers)
            return lambda now_s: fixed
        loads = tuple(dict.fromkeys(load for _, load in self.servers if load is not None))
        known: dict[tuple[float, ...], tuple[Server, ...]] = {}

        def servers(now_s: float) -> Sequence[Server]:
            speeds = tuple(load.speed(now_s, seconds) for load in loads)
            if speeds not in known:
                of = dict(zip(loads, speeds, strict=True))
                known[speeds] = tuple(
                    server if load is None else replace(server, speed=of[load]) for server, load in self.servers
                )
            return known[speeds]

        return servers

    def most_gpus(self, gpu_memory_gb: float = 0.0) -> int:
        """Return the most GPUs that a job with this need of GPU memory can have at once, at the hour of least load."""
        hours = sorted({hour for _, load in self.servers if load for hour, _ in load.steps} or {0.0})
        return max(
            sum(
                server.gpus
                for server, load in self.servers
                if server.gpu_memory_gb >= gpu_memory_gb and (load is None or load.speed(hour * 3600, 1.0) > 0)
            )
            for hour in hours
        )

    def plain(self) -> dict[str, Any]:
        """Return the sums of the servers' resources as JSON."""
        servers = [server for server, _ in self.servers]
        return {
            "file": self.name,
            "servers": len(servers),
            "gpus": sum(server.gpus for server in servers),
            "shared_gpus": sum(server.gpus for server, load in self.servers if load is not None),
            "cpus": sum(server.cpus for server in servers),
            "memory_gb": sum(server.memory_gb for server in servers),
            "storage_mbps": sum(server.storage_mbps for server in servers),
        }


def read(path: Path) -> Cluster:
    """Read a cluster.

    Raises:
        Unreadable: with a sentence.
    """
    text = yaml_files.text(path, "a cluster as .ini or .yaml")
    return Cluster(path.name, shape(path, text)) if path.suffix == ".ini" else from_yaml(path, text)


def from_yaml(path: Path, text: str) -> Cluster:
    """Return the cluster of a text.

    Raises:
        Unreadable: with a sentence.
    """
    plain = yaml_files.parse(path, text)
    written = checked(path, _File, plain)
    gpus = tuple(sorted({group.gpu for group in written.servers if group.gpu}))
    servers = tuple(_server(group) for group in written.servers for _ in range(group.count))
    return Cluster(path.name, servers, gpus)


def _server(group: _Servers) -> tuple[Server, Load | None]:
    storage = STORAGE_MBPS_PER_GPU * group.gpus if group.storage is None else group.storage
    server, hp = Server(group.gpus, group.cpus, group.memory, storage), group.hp
    if hp is None:
        return server, None
    curve = hp.busy_curve or [(0.0, hp.busy or 0.0)]
    if curve[0][0] > 0:
        curve = [(0.0, curve[-1][1]), *curve]  # from midnight to the first hour, the last value of the day holds
    if hp.free_memory_gb is not None:
        server = replace(server, gpu_memory_gb=hp.free_memory_gb)
    return server, Load(tuple(curve), hp.busy_periods, hp.switch, hp.slowdown)
