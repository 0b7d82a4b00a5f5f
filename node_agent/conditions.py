"""What people should know of a GPU and its clients, and since when.

A condition is there while its cause is. Its beginning and end are logged once each, through a token bucket: what is
said of a client rests on its own pages, and a hostile one could change them at every look.
"""

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from orion.node_agent import faults, policies
from orion.node_agent.boards import Board
from orion.node_agent.clients import Client, Seat
from orion.node_agent.rates import TokenBucket

_log = logging.getLogger(__name__)

_NAME_MAX = 64
_SETTLED_NS = 2_000_000_000
""" So long after joining, a client knows whether it shares its context. """
_LOG_BURST, _LOG_PER_SECOND = 8, 1 / 60


@dataclass(frozen=True)
class Condition:
    """One thing to know; ``since`` in seconds since 1970, ``message`` printable ASCII."""

    reason: str
    message: str
    since: float


@dataclass
class _Subject:
    """A GPU, or one of its clients."""

    name: str
    conditions: tuple[Condition, ...] = ()
    log: TokenBucket = field(default_factory=lambda: TokenBucket(_LOG_BURST, _LOG_PER_SECOND))

    def update(self, found: Mapping[str, str]) -> None:
        before = {condition.reason: condition.since for condition in self.conditions}
        if not before and not found:
            return
        now = time.time()
        self.conditions = tuple(
            Condition(reason, message, before.get(reason, now)) for reason, message in found.items()
        )
        for reason in found.keys() - before.keys():
            self._say(f"{reason}: {found[reason]}")
        for reason in before.keys() - found.keys():
            self._say(f"{reason} is over")

    def _say(self, what: str) -> None:
        if not self.log.take():
            _log.warning("condition: %s %s", self.name, what)


class Conditions:
    """Those of one GPU's board."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._gpu = _Subject(board.gpu.uuid)
        self._clients: dict[Seat, _Subject] = {}
        self.told: Mapping[str, str] = {}
        """ What is known of the GPU from elsewhere: sentences by their reasons. """

    def look(self) -> None:
        """Find out what is so now."""
        ready = [client for client in self._board.clients.values() if client.ready]
        self._clients = {client.seat: self._clients.get(client.seat) or self._subject(client) for client in ready}
        for client in ready:
            self._clients[client.seat].update(of_client(client))
        self._gpu.update({**of_gpu(self._board, time.monotonic_ns()), **self.told})

    @property
    def gpu(self) -> tuple[Condition, ...]:
        """The GPU's, as of the last look."""
        return self._gpu.conditions

    def client(self, seat: Seat) -> tuple[Condition, ...]:
        """A client's, as of the last look."""
        subject = self._clients.get(seat)
        return subject.conditions if subject else ()

    def _subject(self, client: Client) -> _Subject:
        return _Subject(f"{self._board.gpu.uuid} {client.slot.name} process {client.process_id} ({client.command})")


def of_client(client: Client) -> dict[str, str]:
    """Return the sentences about a client by their reasons."""
    found = {}
    if client.condition:
        found["Reported"] = client.condition
    if client.record.fault:
        found["ContextLost"] = faults.of_client(client.record.fault)
    long_ns, name = client.record.long_kernel()
    if long_ns:
        shown = name if len(name) <= _NAME_MAX else f"{name[: _NAME_MAX - 3]}..."
        found["LongKernels"] = f"runs kernels of {long_ns / 1e6:.3g} ms ({shown}): hp may wait for one of them"
    return found


def of_gpu(board: Board, now_ns: int) -> dict[str, str]:
    """Return the sentences about a GPU by their reasons."""
    settled = [
        each
        for each in board.clients.values()
        if each.ready and now_ns - each.joined_ns > _SETTLED_NS and each.record.launches
    ]
    sharing = sum(each.record.shares_context for each in settled)
    found = {}
    lost = [each.record.fault for each in settled if each.record.shares_context and each.record.fault]
    if len(lost) > 1:
        found["SharedFault"] = faults.of_shared(lost, sharing)
    if 0 < sharing < len(settled):
        found["MixedContexts"] = (
            f"{sharing} of {len(settled)} clients share a context (MPS), the others do not: they run by turns, and "
            "nothing of one group overlaps with the other; start all of them with the same MPS daemon or none"
        )
    if not settled or not policies.grants_overlap(board.policy):
        return found
    slowdown = f"maxSlowdown {board.policy.max_slowdown_milli / 1_000:g}"
    if not sharing:
        found["OverlapNeedsSharedContext"] = (
            f"{slowdown} has no effect: contexts run by turns here (time-slicing); overlap needs MPS, or threads of "
            "one process"
        )
    elif policies.unkept(board.policy):
        found["BudgetBelowSharingCost"] = policies.unkept(board.policy)
    elif board.policy.sharing_cost_milli <= 1_000:
        found["SharingCostUnknown"] = (
            f"{slowdown} counts overlap alone: what sharing a context (MPS) costs this hp by itself comes on top and "
            "is not known; measure it and set it (sharingCost)"
        )
    return found
