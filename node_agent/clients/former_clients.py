"""What the processes of a slot's former clients may still hold.

A tenant may let any number of clients leave whose processes live on, and wish for memory again and again. So a step
looks at a few of them only, and what all hold is a running sum.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from itertools import islice

from orion.node_agent.processes.liveness import Program
from orion.node_agent.state.state_file import RememberedClient

_LOOKS = 16
""" At so many programs the agent looks at a time; the others come next. """


class FormerClients:
    """The programs that were clients of one slot and may still hold memory."""

    def __init__(self) -> None:
        self.sum_mib = 0
        """ What all of them may hold. """
        self._mib: OrderedDict[Program, int] = OrderedDict()
        """ What each may hold; the one that waits longest for a look comes first. """
        self._of_process: dict[int, set[Program]] = {}
        """ By process id; several if the process has executed another program. """
        self._ended_ns: dict[Program, int] = {}
        """ When those that end, but may still hold memory, were first seen to end. """

    def __len__(self) -> int:
        return len(self._mib)

    def add(self, program: Program, mib: int) -> None:
        """Note that a program has left, perhaps again, and what it may still hold."""
        self.sum_mib += mib - self._mib.get(program, 0)
        self._mib[program] = mib
        self._of_process.setdefault(program.process_id, set()).add(program)

    def forget_process(self, process_id: int) -> None:
        """Forget what a process held: it is a client again."""
        for program in self._of_process.pop(process_id, ()):
            self._drop(program)

    def ended_mib(self, since_ns: int) -> int:
        """Return what those may hold that end, and did not yet do so at that time, or only shortly before."""
        return sum(self._mib[program] for program, ended_ns in self._ended_ns.items() if ended_ns >= since_ns)

    def look(self, ends: Callable[[Program], bool], holds: Callable[[Program], bool]) -> None:
        """Look at those that wait longest, and forget which of them have ended and hold nothing any more.

        Args:
            ends: whether a program runs no more.
            holds: whether one that ends may still hold memory.
        """
        for program in list(islice(self._mib, _LOOKS)):
            if not ends(program):
                self._mib.move_to_end(program)
                continue
            if holds(program):
                self._ended_ns.setdefault(program, time.monotonic_ns())
                self._mib.move_to_end(program)
                continue
            self._drop(program)
            of_process = self._of_process[program.process_id]
            of_process.remove(program)
            if not of_process:
                del self._of_process[program.process_id]

    def _drop(self, program: Program) -> None:
        self.sum_mib -= self._mib.pop(program)
        self._ended_ns.pop(program, None)


def living(remembered: RememberedClient) -> Program | None:
    """Return what runs in the process of a client of the previous agent; None: it has ended, or another has its id."""
    program = Program.of(remembered.process_id)
    is_its = program is not None and remembered.started in (None, program.started)
    return program if is_its else None


def may_live(remembered: RememberedClient) -> bool:
    """Return whether a client of the previous agent may still run: its process lives, or is not known."""
    return remembered.process_id == 0 or living(remembered) is not None
