"""The conditions of a GPU and its clients, and since when each exists.

A condition lasts as long as its cause. The agent logs its beginning and its end once each, through a token bucket:
conditions of a client come from its own pages, and a hostile client could change them at every check. It could also
leave and join again, so all clients of a slot have one bucket.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orion.hook import layout
from orion.node_agent.clients.client import Client, ClientKey
from orion.node_agent.clients.shared_gpu import SharedGpu
from orion.node_agent.pacing.token_bucket import TokenBucket
from orion.node_agent.sharing import policies
from orion.node_agent.sharing.reasons import REQUESTS_SCALED
from orion.planning.sharing import due

_log = logging.getLogger(__name__)

_NAME_MAX = 64
_SETTLED_NS = 2_000_000_000
""" After this time since joining, a client knows whether it shares its context. """
_OVERLAP_NS = 2_000_000_000
""" Requests must add up to too much for this time: a new program may follow one that ends. """
_SLOTS_NAMED = 8
_LOG_BURST, _LOG_PER_SECOND = 8, 1 / 60
_CUDA_ERRORS = {
    214: "uncorrectable ECC error",
    220: "uncorrectable NVLink error",
    226: "contained GPU error",
    700: "illegal address",
    702: "launch timeout",
    709: "context is destroyed",
    710: "device-side assert",
    714: "hardware stack error",
    715: "illegal instruction",
    716: "misaligned address",
    717: "invalid address space",
    718: "invalid program counter",
    719: "launch failure",
    805: "connection to the MPS server failed",
    806: "the MPS server does not answer",
    810: "the MPS server ended the client",
}
""" CUDA errors that end a context, as a client's record has them (hook/src/core/faults.h). Messages name them because
people must act: only a restarted process gets a new context, and an MPS server can end with all its clients. """


@dataclass(frozen=True)
class Condition:
    """A condition; ``since`` is in seconds since 1970, ``message`` is printable ASCII."""

    reason: str
    message: str
    since: float


@dataclass
class _Subject:
    """A GPU, or one of its clients."""

    name: str
    log: TokenBucket
    conditions: tuple[Condition, ...] = ()

    def update(self, found: Mapping[str, str]) -> None:
        before = {condition.reason: condition.since for condition in self.conditions}
        if not before and not found:
            return
        now = time.time()
        self.conditions = tuple(
            Condition(reason, message, before.get(reason, now)) for reason, message in found.items()
        )
        for reason in found.keys() - before.keys():
            self._warn(f"{reason}: {found[reason]}")
        for reason in before.keys() - found.keys():
            self._warn(f"{reason} is over")

    def _warn(self, what: str) -> None:
        if not self.log.take():
            _log.warning("condition: %s %s", self.name, what)


class Conditions:
    """The conditions of one GPU and its clients."""

    def __init__(self, shared_gpu: SharedGpu) -> None:
        self._shared_gpu = shared_gpu
        self._gpu = _Subject(shared_gpu.gpu.uuid, _log_bucket())
        self._clients: dict[ClientKey, _Subject] = {}
        self._slots: dict[str, TokenBucket] = {}
        """ What the log still takes from each slot. """
        self.reported: Mapping[str, str] = {}
        """ Conditions of the GPU that other parts of the agent report: messages by reason. """
        self.resource_file = ""
        """ What people should know about the GPU's resource file (resource_files/); empty: nothing. """
        self.driver_limits = ""
        """ Why the driver does not hold the limits of containers (driver_limits/); empty: it does, or need not. """
        self._over_since_ns = 0
        """ Since when requests add up to more than the GPU; 0: they do not. """

    def look(self) -> None:
        """Update all conditions."""
        self._slots = {name: self._slots.get(name) or _log_bucket() for name in self._shared_gpu.slots}
        ready = [client for client in self._shared_gpu.clients.values() if client.ready]
        self._clients = {client.key: self._clients.get(client.key) or self._subject(client) for client in ready}
        for client in ready:
            self._clients[client.key].update(of_client(client))
        others = {"ResourceFile": self.resource_file, "DriverMemoryLimits": self.driver_limits}
        others = {reason: message for reason, message in others.items() if message}
        self._gpu.update({**self._of_gpu(time.monotonic_ns()), **self.reported, **others})

    @property
    def gpu(self) -> tuple[Condition, ...]:
        """The conditions of the GPU at the last update."""
        return self._gpu.conditions

    def client(self, key: ClientKey) -> tuple[Condition, ...]:
        """Return the conditions of a client at the last update."""
        subject = self._clients.get(key)
        return subject.conditions if subject else ()

    def _of_gpu(self, now_ns: int) -> dict[str, str]:
        found = of_gpu(self._shared_gpu, now_ns)
        if REQUESTS_SCALED not in found:
            self._over_since_ns = 0
            return found
        self._over_since_ns = self._over_since_ns or now_ns
        if now_ns - self._over_since_ns < _OVERLAP_NS:
            del found[REQUESTS_SCALED]
        return found

    def _subject(self, client: Client) -> _Subject:
        slot = client.slot.name
        name = f"{self._shared_gpu.gpu.uuid} {slot} process {client.process_id} ({client.command})"
        return _Subject(name, self._slots[slot])


def _log_bucket() -> TokenBucket:
    return TokenBucket(_LOG_BURST, _LOG_PER_SECOND)


def of_client(client: Client) -> dict[str, str]:
    """Return the conditions of a client: messages by reason."""
    found = {}
    if client.condition:
        found["Reported"] = client.condition
    if client.record.fault:
        found["ContextLost"] = _context_lost(client.record.fault)
    if client.park_problem is not None:
        reason, message = client.park_problem
        found[reason] = message
    long_ns, name = client.record.long_kernel()
    if long_ns:
        shown = name if len(name) <= _NAME_MAX else f"{name[: _NAME_MAX - 3]}..."
        found["LongKernels"] = f"runs kernels of {long_ns / 1e6:.3g} ms ({shown}): hp may wait for one of them"
    return found


def of_gpu(shared_gpu: SharedGpu, now_ns: int) -> dict[str, str]:
    """Return the conditions of a GPU: messages by reason, the gravest first."""
    return {**_of_contexts(shared_gpu, now_ns), **_scaled(shared_gpu)}


def _of_contexts(shared_gpu: SharedGpu, now_ns: int) -> dict[str, str]:
    settled = [
        each
        for each in shared_gpu.clients.values()
        if each.ready and now_ns - each.joined_ns > _SETTLED_NS and each.record.launches
    ]
    sharing = sum(each.record.shares_context for each in settled)
    found = {}
    lost = [each.record.fault for each in settled if each.record.shares_context and each.record.fault]
    if len(lost) > 1:
        found["SharedFault"] = _shared_contexts_lost(lost, sharing)
    if 0 < sharing < len(settled):
        found["MixedContexts"] = (
            f"{sharing} of {len(settled)} clients share a context (MPS), the others do not: the two groups are "
            "time-sliced and never overlap; start all of them with the same MPS daemon or none"
        )
    if not settled or not policies.grants_overlap(shared_gpu.policy):
        return found
    slowdown = f"maxSlowdown {shared_gpu.policy.max_slowdown_milli / 1_000:g}"
    if not sharing:
        found["OverlapNeedsSharedContext"] = (
            f"{slowdown} has no effect: contexts are time-sliced here; overlap needs MPS, or threads of one process"
        )
    elif policies.unkept(shared_gpu.policy):
        found["BudgetBelowSharingCost"] = policies.unkept(shared_gpu.policy)
    elif shared_gpu.policy.sharing_cost_milli <= 1_000:
        found["SharingCostUnknown"] = (
            f"{slowdown} limits overlap only: sharing a context (MPS) adds a slowdown of this hp, which is not known; "
            "measure it and set it (sharingCost)"
        )
    return found


def _scaled(shared_gpu: SharedGpu) -> dict[str, str]:
    """Return what each be slot gets if the requests add up to more than the GPU.

    A slot counts while somebody holds it, whether or not a process has joined: processes come and go.
    """
    claims = {
        name: due.Claim(slot.grant.request_milli / 1_000, (slot.grant.limit_milli or 1_000) / 1_000)
        for name, slot in shared_gpu.slots.items()
        if slot.role is layout.Role.BE and (slot.job or shared_gpu.of_slot(slot))
    }
    asked = sum(claim.request for claim in claims.values())
    if asked <= due.SCALED_ABOVE:
        return {}
    shares = due.due(claims)
    names = sorted(claims, key=lambda name: (-claims[name].request, len(name), name))
    rows = [
        f"{name} asks for {_rounded(claims[name].request) if claims[name].request else 'none'} and gets "
        f"{_rounded(shares[name])}"
        for name in names[:_SLOTS_NAMED]
    ]
    more = f", and {len(names) - _SLOTS_NAMED} more" if len(names) > _SLOTS_NAMED else ""
    what = f"the requests of the be slots add up to {_rounded(asked)}, so they are scaled"
    gets = f"of the time that hp leaves, while all slots want it: {', '.join(rows)}{more}"
    return {REQUESTS_SCALED: f"{what}; {gets}; ask for less (compute.request), or use another GPU"}


def _rounded(part: float) -> str:
    return f"{round(part, 3):g}"


def _cuda_error(error: int) -> str:
    """Return a CUDA error as text. A client wrote the number, so any value is accepted."""
    return f"CUDA error {error} ({_CUDA_ERRORS[error]})" if error in _CUDA_ERRORS else f"CUDA error {error % 2**32}"


def _context_lost(error: int) -> str:
    """Return the message for a client that lost its context with this error."""
    return f"lost its context: {_cuda_error(error)}; it cannot use the GPU any more, restart it"


def _shared_contexts_lost(errors: Sequence[int], clients: int) -> str:
    """Return the message for a GPU where several of the clients that share a context lost it.

    Args:
        errors: one for each client that lost the context.
        clients: how many clients share the context.
    """
    kinds = ", ".join(_cuda_error(error) for error in sorted(set(errors))[:3])
    return (
        f"{len(errors)} of {clients} clients that share a context (MPS) lost it: {kinds}; one client's fault, or the "
        "end of the server, ends all of them: restart these clients, and the MPS daemon if it has ended"
    )
