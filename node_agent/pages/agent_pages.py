"""The pages that the agent writes: a GPU's policy, and what each slot may do.

Each has two copies. The agent writes the copy that is not current, then changes `current`, so a reader always finds a
complete copy without a lock. Words outside the copies are stored through a cast view, which makes one store of the
word's width.
"""

import secrets
import struct
import threading
from collections.abc import Collection
from typing import ClassVar, NamedTuple

from orion.hook import layout
from orion.node_agent.pages import descriptors
from orion.node_agent.pages.futex import Futex
from orion.node_agent.pages.page_header import header
from orion.node_agent.pages.plans import Plan
from orion.node_agent.pages.policy_words import Policy

_GRANT = struct.Struct("<QII2Q4I2I7Q2IQ")
_NO_PLAN: tuple[int, ...] = (0,) * 6
_WORD_MAX = 2**32 - 1


_fence_lock = threading.Lock()


def fence() -> None:
    """Order the stores before this call before the stores and loads after it.

    Releasing a lock and acquiring it again keeps the order: a store cannot move down past the release, nor a load or
    store up past the acquisition, which is an atomic exchange.
    """
    for _ in range(2):
        with _fence_lock:
            pass


class Grant(NamedTuple):
    """What the clients of a slot may do, apart from its turns; times in nanoseconds, memory in bytes (0: no limit)."""

    role: layout.Role
    window_share_ns: int
    memory_limit_bytes: int
    request_milli: int = 0
    """ The part of the GPU's time that the slot is sure to get, in thousandths; 0: none. """
    limit_milli: int = 0
    """ The most of the GPU's time that the slot may use, in thousandths; 0: no limit. """
    memory_wait_ns: int = 0
    """ How long an allocation waits for others to leave a full GPU. """
    parks: bool = False
    """ be: the agent may ask the slot's processes to leave the GPU's memory. """
    unified: layout.Unified = layout.Unified.NONE
    """ be: whether device allocations become managed memory. """
    memory_request_bytes: int = 0
    """ unified: the most of each process that is not managed. """


class _AgentPage:
    """A page that the agent writes and clients read; `descriptor` is read-only, for clients."""

    kind: ClassVar[layout.PageKind]
    current_offset: ClassVar[int]
    copy_offset: ClassVar[int]
    copy_size: ClassVar[int]

    def __init__(self, gpu: str) -> None:
        writable, self.descriptor = descriptors.new_page(f"orion-{self.kind.name.lower()}")
        try:
            self._memory = descriptors.map_to_write(writable)
            descriptors.seal_against_writers(writable)
        finally:
            descriptors.close([writable])
        self._words = self._memory.cast("I")
        self._sequence = 0
        first = header(self.kind, gpu)
        self._memory[: len(first)] = first

    @property
    def _next_offset(self) -> int:
        """Where the copy begins that is not current."""
        return self.copy_offset + (1 - self._words[self.current_offset // 4]) * self.copy_size

    def _switch(self) -> None:
        """Make that copy the current one. Call `fence` after the copy was written and before this."""
        words, current = self._words, self.current_offset // 4
        words[current] = 1 - words[current]

    def close(self) -> None:
        """Close the descriptor; the memory exists as long as a client maps it."""
        descriptors.close([self.descriptor])


class PolicyPage(_AgentPage):
    """The policy of one GPU, how many clients of each role it has, and which hp clients are stopped."""

    kind = layout.PageKind.POLICY
    current_offset = layout.offset(layout.PolicyPage, "current")
    copy_offset = layout.offset(layout.PolicyPage, "copy")
    copy_size = layout.PolicyPage.copy.size // 2

    _hp_clients: ClassVar[int] = layout.offset(layout.PolicyPage, "hp_clients") // 4
    _be_clients: ClassVar[int] = layout.offset(layout.PolicyPage, "be_clients") // 4
    _stopped: ClassVar[int] = layout.offset(layout.PolicyPage, "stopped") // 4

    def write(self, policy: Policy) -> None:
        """Make ``policy`` the current one."""
        self._sequence += 1
        begin, copy = self._next_offset, policy.structure(self._sequence)
        self._memory[begin : begin + len(copy)] = copy
        fence()
        self._switch()

    def count(self, hp_clients: int, be_clients: int) -> None:
        """Write how many clients of each role live on the GPU."""
        self._words[self._hp_clients] = hp_clients
        self._words[self._be_clients] = be_clients

    def stopped(self, index: int) -> int:
        """Return the generation marked as stopped at a client index; 0: none."""
        return self._words[self._stopped + index]

    def mark_stopped(self, index: int, generation: int) -> None:
        """Mark the client of that generation as stopped; generation 0 removes the mark."""
        self._words[self._stopped + index] = generation


class GrantPage(_AgentPage):
    """What one slot may do."""

    kind = layout.PageKind.GRANT
    current_offset = layout.offset(layout.GrantPage, "current")
    copy_offset = layout.offset(layout.GrantPage, "copy")
    copy_size = layout.GrantPage.copy.size // 2

    _plan: ClassVar[int] = layout.offset(layout.GrantPage, "plan") // 4
    _epoch: ClassVar[int] = layout.offset(layout.GrantPage, "credit_epoch") // 4
    _used: ClassVar[int] = layout.offset(layout.GrantPage, "used_mib") // 4
    _park: ClassVar[int] = layout.offset(layout.GrantPage, "park") // 4
    _leaving: ClassVar[int] = layout.offset(layout.GrantPage, "leaving_mib") // 4
    _returning: ClassVar[int] = layout.offset(layout.GrantPage, "returning_mib") // 4
    _question: ClassVar[int] = layout.offset(layout.GrantPage, "question") // 4
    _stays: ClassVar[int] = layout.offset(layout.GrantPage, "stays") // 4
    _besides: ClassVar[int] = layout.offset(layout.GrantPage, "besides") // 8
    _credit: ClassVar[int] = layout.offset(layout.GrantPage, "credit_mib") // 4

    def __init__(self, gpu: str) -> None:
        super().__init__(gpu)
        self.epoch = secrets.randbits(31) + 1
        """ Tells this page's credits from those of an earlier agent's page. """
        self._words[self._epoch] = self._words[self._question] = self.epoch
        self._before_plan: tuple[int, ...] = ()
        self._plan_words = _NO_PLAN
        self._after_plan: tuple[int, ...] = ()
        """ The words of the grant, apart from the sequence. """
        self._waiting = Futex(self._memory, 4 * self._plan)
        self._long_words = self._memory.cast("Q")

    def write(self, grant: Grant) -> None:
        """Make ``grant`` the current one; the turns stay."""
        limits = (grant.window_share_ns, grant.memory_limit_bytes, grant.request_milli, grant.limit_milli, 0, 0, 0, 0)
        self._before_plan = (grant.role, grant.parks, *limits)
        self._after_plan = (grant.memory_wait_ns, grant.unified, 0, grant.memory_request_bytes)
        self._write_copy()
        fence()
        self._switch()

    def _write_copy(self) -> None:
        self._sequence += 1
        words = (self._sequence, *self._before_plan, *self._plan_words, *self._after_plan)
        _GRANT.pack_into(self._memory, self._next_offset, *words)

    def credit(self, index: int) -> int:
        """Return how much memory the client of that index may hold, in MiB."""
        return self._words[self._credit + index]

    def set_credit(self, index: int, mib: int) -> None:
        """Change a client's credit. What the client holds is to be read after this, not before."""
        self._words[self._credit + index] = max(0, min(mib, _WORD_MAX))
        fence()

    def set_used(self, mib: int) -> None:
        """Write what the slot's processes hold together."""
        self._words[self._used] = min(mib, _WORD_MAX)

    def set_besides(self, index: int, generation: int, mib: int) -> None:
        """Write what the slot holds apart from what a client's own hook counts."""
        self._long_words[self._besides + index % layout.BESIDES] = generation << 32 | min(mib, _WORD_MAX)

    @property
    def park(self) -> int:
        """The number of the last wish; odd: the slot's processes shall leave the GPU's memory."""
        return self._words[self._park]

    def set_park(self, number: int) -> None:
        """Write the number of a wish."""
        self._words[self._park] = number & _WORD_MAX

    def set_stays(self, index: int, stays: bool) -> None:
        """Write whether the client of that index stays while the slot's processes shall leave."""
        word, bit = self._stays + index // 32, 1 << index % 32
        self._words[word] = self._words[word] | bit if stays else self._words[word] & ~bit

    def set_leaving(self, mib: int) -> None:
        """Write how much of what is not free on the GPU others would leave to a slot that waits for them."""
        self._words[self._leaving] = max(0, min(mib, _WORD_MAX))

    def set_returning(self, mib: int) -> None:
        """Write how much of what is free others have been let back into; clients ask before they take any."""
        self._words[self._returning] = max(0, min(mib, _WORD_MAX))

    @property
    def question(self) -> int:
        """The number of the last question to the driver."""
        return self._words[self._question]

    def asks(self) -> None:
        """Count a question to the driver. What the clients hold is to be read after this, not before."""
        self._words[self._question] = (self.question + 1) & _WORD_MAX
        fence()


def write_plans(plans: Collection[tuple[GrantPage, Plan | None]]) -> None:
    """Change the turns of slots, and wake the clients that wait for one; None: the slot waits for no other slot.

    Early ends of turns change the turns of all slots of a GPU, so this must take little time.
    """
    for page, plan in plans:
        page._plan_words = plan.words if plan else _NO_PLAN
        page._write_copy()
    fence()
    for page, _ in plans:
        page._switch()
        page._words[page._plan] = (page._words[page._plan] + 1) & _WORD_MAX
        page._waiting.wake_all()
