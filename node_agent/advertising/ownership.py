"""Which program gives the node's slots, where each node chooses: the device plugin or the DRA driver, never both.

The agent decides, because it alone knows all slots and who holds them; both programs ask it already. Both programs run
on each node, and the one that does not give waits. A label of the node says who should give. A change waits until
nobody holds a slot: meanwhile nobody gives a free one, as if the GPUs were cordoned, and pods run on, also through
restarts of their containers. Then the node changes hands, and the file says so before anybody learns it. So the next
agent goes on where this one has ended, at every step.

What a program gave just before it had to stop may become known later: the kubelet admits a pod before the agent
sees its container, and the scheduler allocates a claim before its pod is bound. So the node must stay free for a while.
Where the agent is asked, it refuses what the wrong program gives.

The file is gone after a reboot, and pods keep what they have. Then those who hold slots show who gave them.

Rejected: a lock that plugin and driver take. Neither knows whether pods of the other still hold slots. Rejected: only
one of both programs on a node, by the DaemonSets' node selectors. The driver must be there until the last claim has
been given back, whatever the label says.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from orion.atomic_files import replace_file
from orion.crds.allocation import HANDING_OVER, Giver
from orion.crds.annotations import ALLOCATION
from orion.errors import Conflict
from orion.node_agent.advertising.advertising import FINE, Verdict

UNKNOWN = "GiverUnknown"
_NAMED = 3

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Holding:
    """Who holds slots of the node at one moment, by names for people."""

    by: Mapping[Giver, Sequence[str]] = field(default_factory=dict)
    """ Who has a slot that the program gave. """
    others: Sequence[str] = ()
    """ Pods that are about to have one, and processes that are left of pods. """
    certain: bool = True
    """ Whether nobody else holds one; false: somebody who would know has not answered. """

    @property
    def names(self) -> list[str]:
        """All who hold slots, each once."""
        return sorted({*self.by.get(Giver.DEVICE_PLUGIN, ()), *self.by.get(Giver.DRA, ()), *self.others})


@dataclass(frozen=True)
class Remembered:
    """What the next agent has to know."""

    giver: Giver | None = None
    """ Who gives slots; None: no agent has decided it since the boot. """
    label: str = ""
    """ The node's label, so that an agent that starts lets nobody in before the operator has answered. """


class OwnerFile:
    """Keeps who gives the node's slots, for the next agent. It is on a file system that a reboot empties.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> Remembered:
        """Return what was saved last."""
        try:
            giver, label = self._path.read_text().splitlines()
            return Remembered(Giver(giver), label)
        except FileNotFoundError:
            return Remembered()
        except (OSError, ValueError) as error:
            _log.warning("allocation: %s cannot be read; those who hold slots show who gives: %s", self._path, error)
            return Remembered()

    def write(self, giver: Giver, label: str) -> bool:
        """Save who gives, and the label; return whether that has succeeded."""
        try:
            replace_file(self._path, f"{giver}\n{label}\n".encode(), alone=True)
        except OSError as error:
            _log.error("allocation: %s cannot be written, so the node does not change hands: %s", self._path, error)
            return False
        return True


class Ownership:
    """Decides who gives the slots of a node.

    Args:
        remembered: what the previous agent saved.
        remember: saves who gives from now on, and the label; returns whether that has succeeded.
        settle_seconds: how long nobody may have held a slot before the node changes hands.
        now: the time, in seconds, monotonic.
    """

    def __init__(
        self, remembered: Remembered, remember: Callable[[Giver, str], bool], settle_seconds: float, now: float
    ) -> None:
        self._remember, self._settle_seconds = remember, settle_seconds
        self._free_since = now
        self.giver = remembered.giver
        """ Who gives slots; None: not known yet, so nobody does. """
        self.wanted: Giver | None = None
        """ Who should give them; None: not known yet, or the label is nonsense. """
        self.waits_for = ""
        """ What the change waits for, as a sentence; empty: there is none to come. """
        self._label = ""
        self.want(remembered.label, now)

    @property
    def is_settled(self) -> bool:
        """Whether there is nothing to decide, so that `look` needs no facts."""
        return self.giver is not None and self.wanted in (None, self.giver)

    def want(self, label: str, now: float) -> None:
        """Take over who should give.

        Args:
            label: the label's value; empty: not known yet.
            now: the time, in seconds, monotonic.
        """
        if label in ("", self._label):
            return
        self._label, self._free_since = label, now
        self.wanted = Giver(label) if label in list(Giver) else None
        if self.wanted is None:
            _log.warning("allocation: %s; nothing changes until it is", _nonsense(label))
        if self.giver is not None:
            self._remember(self.giver, label)
        if self.is_settled:
            self.waits_for = ""

    def look(self, holding: Holding, now: float) -> None:
        """Decide again.

        Args:
            holding: who holds slots now.
            now: the time, in seconds, monotonic.
        """
        if self.giver is None:
            self._find(holding)
        if self.is_settled or self.giver is None or self.wanted is None:
            return
        if names := holding.names:
            self._free_since = now
            self.waits_for = f"{_asks(self.wanted)} when nobody holds a slot here any more; these do: {_some(names)}"
        elif not holding.certain:
            self._free_since = now
            self.waits_for = f"{_asks(self.wanted)} once kubelet and operator have said that nobody holds a slot here"
        elif now - self._free_since < self._settle_seconds:
            self.waits_for = f"{_asks(self.wanted)} soon: nobody holds a slot here"
        elif self._remember(self.wanted, self._label):
            _log.info(
                "allocation: %s gives this node's slots from now on, as the node's label says", self.wanted.program
            )
            self.giver, self.waits_for = self.wanted, ""

    def refuse(self, giver: Giver) -> None:
        """Refuse a slot to somebody who does not have it yet, if the program that gives it may not.

        Raises:
            Conflict: the program does not give this node's slots.
        """
        if self.giver is not giver:
            who = self.giver.program if self.giver else "nobody yet"
            raise Conflict(
                f"not {giver.program} but {who} gives this node's slots (label {ALLOCATION}): delete the pod, so that "
                "it starts on another node"
            )

    def contradicts(self, by_claim: bool) -> bool:
        """Return whether a slot that is held was not given by the program that gives now.

        Args:
            by_claim: whether a ResourceClaim holds the slot.
        """
        return self.giver is not None and by_claim != (self.giver is Giver.DRA)

    def verdict(self, _: str) -> Verdict:
        """Return whether new pods can get slots."""
        if self.giver is None:
            why = "it is not known yet whether the device plugin or the DRA driver gives this node's slots"
            wrong = f": {_nonsense(self._label)}" if self._label and self.wanted is None else ""
            return Verdict(cordoned=True, reason=UNKNOWN, message=f"{why}{wrong}")
        if not self.is_settled:
            return Verdict(cordoned=True, reason=HANDING_OVER, message=self.waits_for or _asks(self.giver.other))
        return FINE

    def _find(self, holding: Holding) -> None:
        """Find who gives after a boot, or after an upgrade from a cluster with one program: by who holds slots."""
        holders = [giver for giver in Giver if holding.by.get(giver)]
        found = holders[0] if len(holders) == 1 else self.wanted
        if not holding.certain or found is None:
            return
        if self._remember(found, self._label):
            _log.info("allocation: %s gives this node's slots", found.program)
            self.giver, self.waits_for = found, ""


def _asks(wanted: Giver) -> str:
    return f"label {ALLOCATION} of the node asks for {wanted}: {wanted.program} gives this node's slots"


def _nonsense(label: str) -> str:
    return f"label {ALLOCATION} of the node must be {Giver.DEVICE_PLUGIN} or {Giver.DRA}, not {label[:63]!r}"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
