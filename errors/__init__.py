"""The one tree of Orion's exceptions. This package is below all others and imports only the standard library.

OrionError        1  INTERNAL             any of the errors below
├─ Invalid        2  INVALID_ARGUMENT     an input is wrong: an option, a value, a message
│  └─ Unreadable  1  INVALID_ARGUMENT     a file or a document does not hold what is expected
├─ NotFound       1  NOT_FOUND            a thing that the input names does not exist
├─ Conflict       1  FAILED_PRECONDITION  the present state contradicts the request
├─ Unavailable    1  UNAVAILABLE          another process, service or machine does not answer or is not ready
└─ Exhausted      1  RESOURCE_EXHAUSTED   no slot, memory, disk or client index is left

The number is the exit status of a command, the name is gRPC's status code. `cli/main.py` and the two gRPC servers read
both from the class, so they list no exceptions. A package defines a subclass of these classes only if a caller catches
the subclass by name or reads its attributes. The text of an error names the thing, what is wrong with it, and the next
step.

`Stopped` of `bench/colocation/measurement.py` is outside of the tree: it ends a thread, and no code reports it. The
errors of the testbed are outside, too (`testbed/errors.py`).
"""

from typing import ClassVar


class OrionError(Exception):
    """A failure that the program handles; the text is a sentence for the user."""

    exit_status: int = 1
    grpc_code: ClassVar[str] = "INTERNAL"


class Invalid(OrionError):
    """An input is wrong."""

    exit_status = 2
    grpc_code = "INVALID_ARGUMENT"


class Unreadable(Invalid):
    """A file or a document does not hold what the reader expects."""

    exit_status = 1


class NotFound(OrionError):
    """A thing that the input names does not exist."""

    grpc_code = "NOT_FOUND"


class Conflict(OrionError):
    """The present state contradicts the request."""

    grpc_code = "FAILED_PRECONDITION"


class Unavailable(OrionError):
    """Another process, service or machine does not answer or is not ready; the same request may work later."""

    grpc_code = "UNAVAILABLE"


class Exhausted(OrionError):
    """No slot, memory, disk or client index is left."""

    grpc_code = "RESOURCE_EXHAUSTED"
