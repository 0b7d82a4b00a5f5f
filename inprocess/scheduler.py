"""The Python API of the scheduler.

A `with` block binds a thread to a client and switches torch to the client's stream.
"""

import contextlib
import operator
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from orion.hook.policy_table import TABLE
from orion.inprocess import entry_points

_ROLES = {"hp": entry_points.HP, "be": entry_points.BE}
_NS = 1e-9
_UNBOUND = -1
_BUDGET = next(row for row in TABLE.rows if row.name == "max_slowdown")


@dataclass(frozen=True)
class Figures:
    """The counts and times of one client since the scheduler started; times in seconds.

    Attributes:
        role: "hp" or "be".
        launches: calls that put work on the GPU.
        gated_launches: be: launches that waited for hp.
        gated_seconds: be: how long these launches waited.
        window_waits: be: launches that waited for earlier work of the same client.
        window_wait_seconds: be: how long these launches waited.
        overlapped_launches: be: launches that the policy allowed while hp was busy.
        overlapped_seconds: be: the expected GPU time of these launches.
        busy_seconds: hp: time with work on the GPU.
        busy_periods: hp: number of completed busy periods.
        gpu_seconds: be: expected GPU time of the work that has completed.
        in_flight_seconds: be: expected GPU time of the work in flight.
    """

    role: str
    launches: int
    gated_launches: int
    gated_seconds: float
    window_waits: int
    window_wait_seconds: float
    overlapped_launches: int
    overlapped_seconds: float
    busy_seconds: float
    busy_periods: int
    gpu_seconds: float
    in_flight_seconds: float


class Client:
    """One client of a running scheduler.

    Args:
        index: the client's number, from 0.
        role: "hp" or "be".
        scheduler: the scheduler that it is a client of.
    """

    def __init__(self, index: int, role: str, scheduler: "Scheduler") -> None:
        self.index = index
        self.role = role
        self.scheduler = scheduler

    @property
    def stream(self) -> int:
        """The client's own stream in the calling thread's current CUDA context, a CUstream as a number.

        Pass it to ``torch.cuda.ExternalStream(client.stream)``, or to any other function that takes a CUstream.

        Raises:
            SchedulerError: the thread has no context, the context is on another GPU than the scheduler's, or the
                scheduler has stopped.
        """
        self.scheduler.require_running()
        _make_torch_current()
        return entry_points.stream(self.index)


class _Bound(threading.local):
    """The client that the thread is bound to, and its scheduler, which may have stopped."""

    client: Client | None = None


_bound = _Bound()


class Scheduler:
    """Schedules the threads of this process as clients of one GPU.

    It is a context manager. A process can run one scheduler at a time.

    Args:
        clients: the role of each client, "hp" or "be"; or the number of clients, of which the last is hp.
        policy: how long a be client's launch waits. "gate": until hp is idle. "orion": until hp is idle or the
            budget lets the launch run beside hp. "none": it does not wait for hp.
        max_slowdown: the budget of "orion": how much longer hp's work may take than without overlap; 1: no overlap.

    Raises:
        SchedulerError: the hook is not preloaded, a scheduler already runs, or this process is a node agent's client.
        ValueError: a role, policy or budget is invalid.
    """

    def __init__(
        self, clients: int | Sequence[str] = ("be", "hp"), policy: str = "orion", max_slowdown: float = 1.0
    ) -> None:
        self._roles = _roles_of(clients)
        kind, budget = _checked_policy(policy, max_slowdown)
        self.policy, self.max_slowdown = policy, max_slowdown
        entry_points.start(len(self._roles))
        self._runs = True
        try:
            for index, role in enumerate(self._roles):
                entry_points.set_role(index, _ROLES[role])
            entry_points.set_policy(kind, budget)
        except BaseException:
            self.stop()
            raise

    @contextlib.contextmanager
    def client(self, index: int) -> Iterator[Client]:
        """Bind the calling thread to a client during a `with` block. The blocks may be nested.

        In the block, the client's own stream replaces the thread's default stream and torch's current stream, and torch
        runs backward passes in this thread. Work that other threads put on the default stream before the block
        completes before the client's work. Work that they put on the default stream later runs after the client's work.

        Args:
            index: the client's number, from 0.

        Raises:
            IndexError: there is no such client.
            SchedulerError: the scheduler has stopped.
        """
        if not 0 <= (index := operator.index(index)) < len(self._roles):
            raise IndexError(f"there is no client {index}; the scheduler has {len(self._roles)}")
        self.require_running()
        _make_torch_current()
        before, bound = _bound.client, Client(index, self._roles[index], self)
        entry_points.bind(index)
        _bound.client = bound
        try:
            with _torch_settings(bound):
                yield bound
        finally:
            _bound.client = before
            # Once its scheduler has stopped, the client of the outer block no longer exists, so unbind the thread.
            entry_points.bind(before.index if before is not None and before.scheduler.runs else _UNBOUND)

    def set_policy(self, *, policy: str | None = None, max_slowdown: float | None = None) -> None:
        """Change the policy, from the next launch on. A setting whose argument is None keeps its value.

        Raises:
            SchedulerError: the scheduler has stopped.
            ValueError: a policy or budget is invalid.
        """
        self.require_running()
        wanted = self.policy if policy is None else policy
        budget = self.max_slowdown if max_slowdown is None else max_slowdown
        entry_points.set_policy(*_checked_policy(wanted, budget))
        self.policy, self.max_slowdown = wanted, budget

    def snapshot(self) -> list[Figures]:
        """Return the figures of each client so far, in the order of the clients' numbers.

        Raises:
            SchedulerError: the scheduler has stopped.
        """
        self.require_running()
        return [_figures_of(index, role) for index, role in enumerate(self._roles)]

    def stop(self) -> None:
        """Wait for all clients' work and unbind their threads; do nothing if the scheduler has stopped."""
        if self._runs:
            self._runs = False
            entry_points.stop()

    @property
    def runs(self) -> bool:
        """Whether this scheduler has not stopped."""
        return self._runs

    def require_running(self) -> None:
        """Raise SchedulerError if this scheduler has stopped.

        Without this, calls would act on the clients of the scheduler that runs now.
        """
        if not self._runs:
            raise entry_points.SchedulerError("this scheduler has stopped")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _roles_of(clients: int | Sequence[str]) -> list[str]:
    if isinstance(clients, int):
        if clients < 1:
            raise ValueError(f"a scheduler needs at least one client, not {clients}")
        return ["be"] * (clients - 1) + ["hp"]
    roles = list(clients)
    for role in roles:
        if role not in _ROLES:
            raise ValueError(f'a role is "hp" or "be", not {role!r}')
    return roles


def _checked_policy(policy: str, max_slowdown: float) -> tuple[int, int]:
    if policy not in entry_points.POLICIES:
        raise ValueError(f"there is no policy {policy!r}; choose one of {', '.join(entry_points.POLICIES)}")
    if not _BUDGET.least <= max_slowdown <= _BUDGET.most:
        raise ValueError(f"max_slowdown must be {_BUDGET.least:g} to {_BUDGET.most:g}, not {max_slowdown}")
    return entry_points.POLICIES[policy], _BUDGET.to_page(max_slowdown)


def _figures_of(index: int, role: str) -> Figures:
    now = entry_points.figures(index)
    return Figures(
        role=role,
        launches=now.launches,
        gated_launches=now.gated_launches,
        gated_seconds=now.gated_ns * _NS,
        window_waits=now.window_waits,
        window_wait_seconds=now.window_wait_ns * _NS,
        overlapped_launches=now.overlapped_launches,
        overlapped_seconds=now.overlapped_ns * _NS,
        busy_seconds=now.busy_ns * _NS,
        busy_periods=now.busy_periods,
        gpu_seconds=now.gpu_ns * _NS,
        in_flight_seconds=now.in_flight_ns * _NS,
    )


def _torch() -> Any:
    """Return torch if the program has imported torch and torch has a GPU, else None."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)  # None while torch is being imported
    return torch if cuda is not None and cuda.is_available() else None


def _make_torch_current() -> None:
    """Make torch's context the thread's current one, as CUDA's runtime does at the first call that needs a context."""
    torch = _torch()
    if torch is not None:
        torch.cuda.current_stream().query()


@contextlib.contextmanager
def _torch_settings(client: Client) -> Iterator[None]:
    """Make the client's stream torch's current one, so that torch's allocator knows it; keep backward in this thread.

    torch has one thread for the backward passes on a GPU. A launch of be that waits there for hp would hold up hp's.
    """
    torch = _torch()
    if torch is None:
        yield
        return
    with torch.cuda.stream(torch.cuda.ExternalStream(client.stream)), torch.autograd.set_multithreading_enabled(False):
        yield
