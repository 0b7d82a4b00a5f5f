"""The page of a job: its clients write it, and the agent clears the words of clients that have left.

The clients of a job trust one another, so they share one page that all of them write (hook/include/orion/pages.h). The
agent never reads it. Each client gets a writable descriptor, so the page is sealed only against other sizes and further
seals. No client of another job gets a descriptor.
"""

import secrets

from orion.hook import layout
from orion.node_agent.pages import descriptors, pages

_RANKS_OFFSET = layout.offset(layout.JobPage, "rank")
_RANK_SIZE = layout.JobPage.rank.size // layout.RANKS_MAX
_RANKS_WORD = layout.offset(layout.JobPage, "ranks") // 4


class JobPage:
    """One job's page; `descriptor` is writable, for the job's clients.

    Raises:
        OSError: no descriptor or no memory is left.
    """

    def __init__(self) -> None:
        self.descriptor, readable = descriptors.new_page("orion-job")
        descriptors.close([readable])
        try:
            descriptors.seal_against_seals(self.descriptor)
            self._memory = descriptors.map_to_write(self.descriptor)
        except BaseException:
            descriptors.close([self.descriptor])
            raise
        self._words = self._memory.cast("I")
        first = pages.header(layout.PageKind.JOB, f"job-{secrets.token_hex(16)}")
        self._memory[: len(first)] = first
        self._taken: set[int] = set()

    def take_rank(self) -> int | None:
        """Reserve an index for another client; None: all are taken."""
        free = next((rank for rank in range(layout.RANKS_MAX) if rank not in self._taken), None)
        if free is not None:
            self._taken.add(free)
            self._words[_RANKS_WORD] = max(self._taken) + 1
        return free

    def free_rank(self, rank: int) -> None:
        """Clear the words of a client that has left, so that the others do not wait for it."""
        self._taken.discard(rank)
        begin = (_RANKS_OFFSET + rank * _RANK_SIZE) // 4
        for word in range(begin, begin + _RANK_SIZE // 4):  # `tied` is the first: peers ignore the rank from then on
            self._words[word] = 0

    def close(self) -> None:
        """Close the descriptor; the memory exists as long as a client maps it."""
        descriptors.close([self.descriptor])
