"""The page of a job: its clients write it, and the agent clears the words of clients that have left.

The clients of a job trust one another, so they share one page that all of them write (hook/include/orion/pages.h). The
agent never reads it. Each client gets a writable descriptor, so the page is sealed only against other sizes and further
seals. No client of another job gets a descriptor. The page outlives the agent: a returning client brings a descriptor.
"""

import os
import secrets
from collections.abc import Iterable
from typing import Self

from orion.hook import layout
from orion.node_agent.pages import descriptors, page_header

_RANKS_OFFSET = layout.offset(layout.JobPage, "rank")
_RANK_SIZE = layout.JobPage.rank.size // layout.RANKS_MAX
_RANKS_WORD = layout.offset(layout.JobPage, "ranks") // 4


class JobPage:
    """One job's page. `descriptor` is writable, for the job's clients; `identity` identifies the page while it exists.

    Args:
        descriptor: of the page; closed by this object, also after an error.
        taken: the ranks that clients have already. The words of all others are cleared.

    Raises:
        OSError: the page cannot be mapped.
    """

    def __init__(self, descriptor: int, taken: Iterable[int] = ()) -> None:
        self.descriptor = descriptor
        try:
            self.identity = descriptors.identity(descriptor)
            self._words = descriptors.map_to_write(descriptor).cast("I")
        except BaseException:
            descriptors.close([descriptor])
            raise
        self._taken = set(taken)
        self._count()
        for rank in range(layout.RANKS_MAX):
            if rank not in self._taken:
                self._clear(rank)

    @classmethod
    def new(cls) -> Self:
        """Make a page.

        Raises:
            OSError: no descriptor or no memory is left.
        """
        descriptor, readable = descriptors.new_page("orion-job")
        descriptors.close([readable])
        try:
            os.pwrite(descriptor, page_header.header(layout.PageKind.JOB, f"job-{secrets.token_hex(16)}"), 0)
            descriptors.seal_against_seals(descriptor)
        except BaseException:
            descriptors.close([descriptor])
            raise
        return cls(descriptor)

    def take_rank(self) -> int | None:
        """Reserve a rank for another client; None: all are taken."""
        free = next((rank for rank in range(layout.RANKS_MAX) if rank not in self._taken), None)
        if free is not None:
            self.keep_rank(free)
        return free

    def keep_rank(self, rank: int) -> None:
        """Reserve the rank that a client has already."""
        self._taken.add(rank)
        self._count()

    def free_rank(self, rank: int) -> None:
        """Clear the words of a client that has left, so that the others do not wait for it."""
        self._taken.discard(rank)
        self._clear(rank)

    def close(self) -> None:
        """Close the descriptor; the memory exists as long as a client maps it."""
        descriptors.close([self.descriptor])

    def _count(self) -> None:
        self._words[_RANKS_WORD] = max(self._taken, default=-1) + 1

    def _clear(self, rank: int) -> None:
        begin = (_RANKS_OFFSET + rank * _RANK_SIZE) // 4
        for word in range(begin, begin + _RANK_SIZE // 4):  # `tied` is the first: peers ignore the rank from then on
            self._words[word] = 0
