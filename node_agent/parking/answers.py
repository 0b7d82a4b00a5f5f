"""What a client's answer to the agent's wish means, and what people read about it.

The words are the client's own, and may say anything. What they decide concerns the client's own tenant only.
"""

from enum import Enum
from typing import NamedTuple

from orion.hook.layout import ParkingReason, ParkingState, Role
from orion.node_agent.clients.client import Client
from orion.node_agent.pages.parking_words import ParkingAnswer
from orion.node_agent.slots.slot import Slot

LIE_SECONDS = 2.0
""" The driver may list a process for so long after it has left. """
SLOWEST = 1 << 30
""" Bytes a second: nobody leaves or comes back slower, unless it is stuck. """


class Verdict(Enum):
    """What a client does, by its answer and by what the driver says."""

    HERE = "here"
    LEAVING = "leaving"
    PARKED = "parked"
    RETURNING = "returning"
    REFUSED = "refused"
    SILENT = "silent"
    """ It was asked to leave, and has not answered in time. """
    OVERDUE = "overdue"
    """ It has been leaving for too long. """
    SHORT = "short"
    """ It has joined since the others were asked, and stays, since the host's memory cannot hold what it has. """
    LIES = "lies"
    """ It says that it has left, or that its memory is lost, but the driver lists memory for it. """
    ASLEEP = "asleep"
    """ It may come back, and has not answered in time. """
    LOST = "lost"


FAILED = frozenset({Verdict.REFUSED, Verdict.SILENT, Verdict.SHORT, Verdict.LIES})

STAYING = frozenset({Verdict.REFUSED, Verdict.SILENT, Verdict.SHORT})
""" What its clients do that have not left, and hold what they say. """

UNANSWERED = frozenset({Verdict.SILENT, Verdict.ASLEEP})


class Asked(NamedTuple):
    """What was asked of a client; times in seconds."""

    number: int
    """ The wish; odd: it shall leave. """
    seconds: float
    """ How long ago it was asked, or has joined. """
    held: int
    """ What it held then, in bytes. """
    parked_seconds: float
    """ For how long it had said that it has left, or that its memory is lost, when the driver was asked. """
    listed: int
    """ What the driver lists for it, in bytes; 0: nothing, or it does not say. """
    patience: float
    """ How long it may be silent. """
    was_away: bool = True
    """ It has been away, or may have been under an earlier agent. """


def verdict(answer: ParkingAnswer, asked: Asked) -> Verdict:
    """Return what a client does."""
    lies = asked.listed > 0 and asked.parked_seconds > LIE_SECONDS
    if answer.state is ParkingState.LOST:
        return Verdict.LIES if lies else Verdict.LOST
    if asked.number % 2 == 0:
        return _of_return(answer, asked)
    if answer.state is ParkingState.PARKED:
        return Verdict.LIES if lies else Verdict.PARKED
    if answer.state is ParkingState.REFUSED and answer.number == asked.number:
        return Verdict.REFUSED
    if answer.state is ParkingState.LEAVING:
        late = asked.seconds > asked.patience + asked.held / SLOWEST
        return Verdict.OVERDUE if late else Verdict.LEAVING
    return Verdict.SILENT if asked.seconds > asked.patience else Verdict.LEAVING


def _of_return(answer: ParkingAnswer, asked: Asked) -> Verdict:
    if not asked.was_away:  # nobody keeps room for a client that only says that it comes back
        return Verdict.PARKED if answer.state is ParkingState.PARKED else Verdict.HERE
    if answer.state is ParkingState.PARKED:
        return Verdict.ASLEEP if asked.seconds > asked.patience else Verdict.RETURNING
    moves = answer.state in (ParkingState.RETURNING, ParkingState.LEAVING)
    late = asked.seconds > asked.patience + asked.held / SLOWEST
    return Verdict.RETURNING if moves and not late else Verdict.HERE


_REASONS = {
    ParkingReason.NO_DRIVER: "the driver cannot move a program's memory; install driver 580 or later",
    ParkingReason.MANAGED: "it has managed memory (cudaMallocManaged), which the driver does not move",
    ParkingReason.HOST: "it has a pool or memory of cuMemCreate on the host, which the driver does not bring back",
    ParkingReason.IMPORTED: "it shares GPU memory with another process or network card; run it with oversubscribe none",
    ParkingReason.TOGETHER: "it runs under MPS; set the GPU's mode to timeslice",
    ParkingReason.IS_HP: "it is hp on another GPU; run the two in processes of their own",
    ParkingReason.BUSY: "its work on the GPU did not end in time; launch shorter kernels",
    ParkingReason.CAPTURING: "it was capturing a graph or ending a context",
    ParkingReason.LOCK: "one of its calls to the driver does not return, such as one that waits for work",
    ParkingReason.CHECKPOINT: "the driver did not copy its memory out; see that the pod's memory limit can hold it",
    ParkingReason.RESTORE: "the driver did not copy its memory back",
    ParkingReason.SLOTS: "it uses another GPU whose slot may not park; allow it for all of its slots",
}
_FOR_GOOD = frozenset({
    ParkingReason.NO_DRIVER, ParkingReason.MANAGED, ParkingReason.IMPORTED, ParkingReason.TOGETHER, ParkingReason.IS_HP,
    ParkingReason.SLOTS, ParkingReason.HOST,
})  # fmt: skip


_PASSING = frozenset({ParkingReason.BUSY, ParkingReason.CAPTURING, ParkingReason.LOCK})
_OF_DRIVER = frozenset({ParkingReason.LOCK, ParkingReason.CHECKPOINT})
_CUDA_ERROR_NOT_SUPPORTED = 801
_NOT_SUPPORTED = "the driver does not move a program that uses what this one uses, such as a profiler"


def is_for_good(answer: ParkingAnswer) -> bool:
    """Return whether a refusal says what a later wish would not change."""
    return answer.reason in _FOR_GOOD


def passes_soon(answer: ParkingAnswer) -> bool:
    """Return whether a refusal says what may be otherwise some seconds later."""
    return answer.reason in _PASSING and answer.result != _CUDA_ERROR_NOT_SUPPORTED


def why_it_stays(slot: Slot) -> str:
    """Return why a slot that does not park may not be asked to leave."""
    if slot.role is Role.HP:
        return "it is for hp"
    if slot.memory_sharing.unified:
        return "its memory is managed (unified), which the driver does not copy out"
    return "start its program with `orion run --park`, or set spec.memory.oversubscribe: park in its GPUShare"


def problem(client: Client, verdict: Verdict, retry_seconds: float, was_asked: bool) -> tuple[str, str] | None:
    """Return a client's condition, as a reason and a message for people; None: nothing is wrong.

    Args:
        client: of a be slot.
        verdict: what it does.
        retry_seconds: after how long a tenant that did not leave is asked again.
        was_asked: its tenant shall leave, or has refused that a short time ago.
    """
    answer = client.record.parking
    result = f" (CUDA error {answer.result})" if answer.result else ""
    again = (
        f"it is asked again after {retry_seconds:g} s"
        if was_asked
        else "it is asked to leave when others need the room"
    )
    later = f"it is asked again when it goes on, but not within {retry_seconds:g} s"
    if verdict is Verdict.LOST:
        return "ParkLost", (
            f"could not come back to the GPU's memory{result}, and its CUDA calls fail or never return: restart it; a "
            "larger margin (--parking-margin-mib of the agent) makes this less likely"
        )
    if verdict is Verdict.REFUSED:
        return "ParkRefused", f"did not leave the GPU's memory: {_reason(answer)}{result}; {again}"
    if verdict is Verdict.SILENT:
        return "ParkRefused", (
            f"did not leave the GPU's memory: it did not answer; see that it is not stopped, and that its image has "
            f"this version of the hook; {later}"
        )
    if verdict is Verdict.OVERDUE:
        return "ParkRefused", "has not left the GPU's memory in time: see that it is not stopped; others leave instead"
    if verdict is Verdict.LIES:
        what = "its memory is lost" if answer.state is ParkingState.LOST else "it has left the GPU's memory"
        return "ParkRefused", (
            f"says that {what}, but the driver lists memory for it, which counts; restart it, or let it run without "
            f"parking; {again}"
        )
    if verdict is Verdict.ASLEEP:
        return (
            "ParkRefused",
            f"may come back to the GPU's memory, but does not answer: see that it is not stopped; {later}",
        )
    return None


def _reason(answer: ParkingAnswer) -> str:
    if answer.result == _CUDA_ERROR_NOT_SUPPORTED and answer.reason in _OF_DRIVER:
        return _NOT_SUPPORTED
    return _REASONS.get(answer.reason, "it does not say why")
