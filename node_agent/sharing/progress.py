"""Whether a be slot makes progress in its turns: one that makes none gets no turns for a while, whatever it says."""

from dataclasses import dataclass

from orion.node_agent.sharing.demand import Demand

_FRUITLESS_NS = 100_000_000
""" A slot that had so much time in turns without any progress is shut. """
_FRUITLESS_PIECES, _FRUITLESS_TURNS, _MOST_FRUITLESS_NS = 4, 2, 4_000_000_000
""" If its pieces are long, this number of pieces, up to this time, is not without progress. Where its memory moves, nor
is this number of turns. """
_SHUT_NS, _MOST_SHUT_NS = 1_000_000_000, 4_000_000_000
""" How long it is shut: the first value doubles each time, up to the second. A slot that asks waits for the first one
only: a process that was stopped and continues may have nothing to report that shows progress. """


@dataclass
class Progress:
    """The progress of one slot."""

    fruitless_ns: float = 0.0
    """ The time that it was charged since it last made progress, without `waited_ns`. """
    waited_ns: float = 0.0
    """ The time of its turns in which its clients may have waited for hp, since hp last made progress. """
    shut_until_ns: int = 0
    reopens_ns: int = 0
    shut_ns: int = _SHUT_NS
    """ Until when it gets no turns; since when it gets some if it asks; for how long it gets none the next time. """

    def judge(self, held_ns: float, demand: Demand, in_window: bool, hp_stall_ns: int) -> None:
        """Note whether the slot makes progress in its turns.

        Args:
            held_ns: the time of its turns since the last check, less hp's part.
            demand: what its clients did.
            in_window: it belongs to a job that uses several GPUs, and may wait for the others (joint.py).
            hp_stall_ns: for so long it may still wait for hp that makes no progress. A client waits for one hp client
                after the other, for the stall time since it first saw that one (hook/src/be/gate.c), which is later
                than the agent did if it began to wait later. After that it waits no more until hp makes progress. So
                the time counts once, also if the slot launches.
        """
        if not hp_stall_ns:
            self.waited_ns = 0.0
        if demand.reported_ns or demand.launched:
            self.fruitless_ns, self.shut_ns, self.shut_until_ns = 0.0, _SHUT_NS, 0
        elif not in_window and demand.clients:
            waited = min(held_ns, max(0.0, hp_stall_ns - self.waited_ns))
            self.waited_ns += waited
            self.fruitless_ns += held_ns - waited

    def look(self, now_ns: int, piece_ns: int, average_ns: int) -> None:
        """Shut the slot if it has been without progress for too long.

        Args:
            now_ns: the present time.
            piece_ns: the longest work of its clients.
            average_ns: memory moves with turns of this length, and a turn may wait for it; 0: none does.
        """
        bearable_ns = max(_FRUITLESS_PIECES * piece_ns, _FRUITLESS_TURNS * average_ns)
        if self.fruitless_ns > max(_FRUITLESS_NS, min(bearable_ns, _MOST_FRUITLESS_NS)):
            self.fruitless_ns = 0.0
            self.shut_until_ns, self.reopens_ns = now_ns + self.shut_ns, now_ns + _SHUT_NS
            self.shut_ns = min(2 * self.shut_ns, _MOST_SHUT_NS)

    def asks(self, now_ns: int) -> bool:
        """Note that the slot asks for turns; return whether it gets some. Then it is no longer shut."""
        if now_ns < min(self.shut_until_ns, self.reopens_ns):
            return False
        self.shut_until_ns = 0
        return True
