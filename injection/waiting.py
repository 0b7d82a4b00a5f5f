"""Whether this program gives the node's slots, or waits for the other one: the agent decides it (ownership.py there).

The last snapshot stays in force while the agent is away, also for this program's next process. So nobody begins to give
slots because nobody answers. A program that was away when the node changed hands has an older snapshot. The agent's own
file, which it writes before it says so, corrects that.
"""

import contextlib
import logging
from collections.abc import Callable
from pathlib import Path

from orion.crds.allocation import OWNER_FILE, Giver
from orion.injection.current import CurrentSnapshot

_log = logging.getLogger(__name__)


def saved_giver(root: Path) -> str:
    """Return who gives the node's slots as the last agent has saved it; empty: nodes do not choose, or it is not known.

    Args:
        root: the agent's folder.
    """
    with contextlib.suppress(OSError, ValueError):
        return Giver((root / OWNER_FILE).read_text().partition("\n")[0]).value
    return ""


class Waiting:
    """Knows whether one of both programs waits.

    Args:
        own: the program.
        by_node: whether nodes choose. Then the program waits until an agent has named it.
        current: the agent's last snapshot.
    """

    def __init__(self, own: Giver, by_node: bool, current: CurrentSnapshot) -> None:
        self._own, self._by_node, self._current = own, by_node, current

    @property
    def why(self) -> str:
        """For whom or what the program waits, as a sentence; empty: it gives slots."""
        snapshot = self._current.snapshot
        named, handover = (snapshot.giver, snapshot.handover) if snapshot is not None else ("", "")
        if named == self._own or not (named or self._by_node):
            return ""
        if not named:
            return "the node's agent has not said yet which program gives this node's slots"
        return f"{self._own.other.program} gives this node's slots" + (f"; {handover}" if handover else "")

    async def follow(self, note: Callable[[bool], None]) -> None:
        """Log whenever the reason changes, for ever.

        Args:
            note: called with whether the program waits now.
        """
        said = ""
        while True:
            changed, why = self._current.changed.next, self.why
            note(bool(why))
            if why != said:
                _log.info(
                    "allocation: %s", f"{self._own.program} waits: {why}" if why else f"{self._own.program} gives"
                )
                said = why
            await changed.wait()
