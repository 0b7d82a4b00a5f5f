"""Lost contexts in words: what a CUDA error that ends a context says of the client, its GPU and its MPS server.

The hook writes the error into the client's record (hook/src/faults.h). What is done about it is for people: a context
cannot be mended, only a process started anew, and an MPS server ends with the clients that it has.
"""

from collections.abc import Sequence

NAMES = {
    214: "uncorrectable ECC error",
    220: "uncorrectable NVLink error",
    226: "contained GPU error",
    700: "illegal address",
    702: "launch timeout",
    709: "context is destroyed",
    710: "device-side assert",
    714: "hardware stack error",
    715: "illegal instruction",
    716: "misaligned address",
    717: "invalid address space",
    718: "invalid program counter",
    719: "launch failure",
    805: "connection to the MPS server failed",
    806: "the MPS server does not answer",
    810: "the MPS server ended the client",
}


def name(error: int) -> str:
    """Return a CUDA error as people know it; any number is answered, since a client wrote it."""
    return f"CUDA error {error} ({NAMES[error]})" if error in NAMES else f"CUDA error {error % 2**32}"


def of_client(error: int) -> str:
    """Return the sentence about a client that lost its context with that error."""
    return f"lost its context: {name(error)}; it cannot use the GPU any more, restart it"


def of_shared(errors: Sequence[int], clients: int) -> str:
    """Return the sentence about a GPU where several of the clients that share a context lost it.

    Args:
        errors: One for each client that did.
        clients: How many share the context.
    """
    kinds = ", ".join(name(error) for error in sorted(set(errors))[:3])
    return (
        f"{len(errors)} of {clients} clients that share a context (MPS) lost it: {kinds}; one client's fault, or the "
        "end of the server, ends all of them: restart these clients, and the MPS daemon if it has ended"
    )
