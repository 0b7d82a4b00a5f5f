"""Why a GPU is not in the requested mode: a reason for programs, and a sentence for people (condition ModePending)."""

from collections.abc import Sequence
from dataclasses import dataclass

from orion.node_agent.mps.folder import MpsFolder, State

_NAMED = 3
_WORDS = 300


@dataclass(frozen=True)
class Pending:
    """Why a GPU is not, or not fully, in the requested mode."""

    reason: str
    """ ClientsPresent, Changing, NotAvailable, DaemonFailed or Unknown. """
    message: str
    """ One sentence. """


UNKNOWN = Pending("Unknown", "the requested mode is not known yet")
ENDING = Pending("Changing", "its MPS control daemon is ending")
NOT_AVAILABLE = Pending(
    "NotAvailable",
    "no MPS daemon runs on the node: install the chart with mps.enabled=true, and see that its pod runs here",
)


def coming(folder: MpsFolder, state: State | None) -> Pending:
    """Return why a requested control daemon does not run.

    Args:
        folder: the folder of the node's MPS daemon.
        state: the state of the GPU's control daemon.
    """
    if not folder.daemon_lives():
        return NOT_AVAILABLE
    if state is not None and state.message:
        return Pending("DaemonFailed", f"its MPS control daemon does not run: {_ascii(state.message)}")
    return Pending("Changing", "its MPS control daemon is starting")


def failed(folder: MpsFolder, state: State | None, seconds: float) -> Pending:
    """Return why a control daemon did not start in time."""
    found = coming(folder, state)
    if found.reason != "Changing":
        return found
    return Pending("DaemonFailed", f"its MPS control daemon has not come up within {seconds:g} s")


def clients_present(mode: str, names: Sequence[str], is_certain: bool) -> Pending:
    """Return which holders prevent the change of a GPU's mode.

    Args:
        mode: the requested mode.
        names: the names of the holders of the GPU's slots.
        is_certain: whether the agent knows all holders.
    """
    if not is_certain and not names:
        when = f"mode {mode} begins when it is certain that no pod holds a slot of the GPU"
        return Pending("ClientsPresent", when)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    who = ", ".join(names[:_NAMED]) + more if names else "processes that have joined it"
    return Pending(
        "ClientsPresent",
        f"mode {mode} begins when the GPU is free; these use it now: {who}. "
        "Set spec.cordon to keep new pods away meanwhile",
    )


def _ascii(text: str) -> str:
    return text.encode("ascii", "replace").decode()[:_WORDS]
