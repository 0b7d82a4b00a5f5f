"""Why a GPU is not in the mode that is wanted: a word for programs, and a sentence for people."""

from collections.abc import Sequence
from dataclasses import dataclass

from orion.node_agent.mps.folder import MpsFolder, State

_NAMED = 3
_WORDS = 300


@dataclass(frozen=True)
class Pending:
    """Why a GPU is not in the mode that is wanted, or not wholly."""

    reason: str
    """ ClientsPresent, Changing, NotAvailable, DaemonFailed. """
    message: str
    """ A sentence. """


UNKNOWN = Pending("Unknown", "which mode is wanted is not known yet")
ENDING = Pending("Changing", "its MPS control daemon is ending")
NOT_AVAILABLE = Pending(
    "NotAvailable",
    "no MPS daemon runs on the node: install the chart with mps.enabled=true, and see that its pod runs here",
)


def coming(folder: MpsFolder, state: State | None) -> Pending:
    """Return what is so of a control daemon that is asked for and does not run.

    Args:
        folder: of the node's MPS daemon.
        state: of the GPU's control daemon.
    """
    if not folder.daemon_lives():
        return NOT_AVAILABLE
    if state is not None and state.message:
        return Pending("DaemonFailed", f"its MPS control daemon does not run: {_ascii(state.message)}")
    return Pending("Changing", "its MPS control daemon is starting")


def failed(folder: MpsFolder, state: State | None, seconds: float) -> Pending:
    """Return why one that was waited for has not come."""
    found = coming(folder, state)
    if found.reason != "Changing":
        return found
    return Pending("DaemonFailed", f"its MPS control daemon has not come up within {seconds:g} s")


def clients_present(mode: str, names: Sequence[str], is_certain: bool) -> Pending:
    """Return who keeps a GPU from another mode.

    Args:
        mode: that is wanted.
        names: of those who hold its slots.
        is_certain: whether it is known who does.
    """
    if not is_certain and not names:
        when = f"mode {mode} begins once it is known that nobody holds a slot of the GPU"
        return Pending("ClientsPresent", when)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    who = ", ".join(names[:_NAMED]) + more if names else "processes that have joined it"
    return Pending(
        "ClientsPresent",
        f"mode {mode} begins when nobody holds a slot of the GPU any more; now: {who}. "
        "spec.cordon keeps further pods away meanwhile",
    )


def _ascii(text: str) -> str:
    return text.encode("ascii", "replace").decode()[:_WORDS]
