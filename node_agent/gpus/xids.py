"""The meaning of the driver's Xid numbers: which ones programs cause, and what the others need.

The numbers are from NVIDIA's "XID Errors" guide. Xids of a faulty kernel or a killed process say nothing about the
health of the GPU. If they made a GPU unhealthy, one tenant could take the GPU from all others.
"""

CAUSED_BY_PROGRAMS = frozenset({13, 31, 43, 45, 68, 109})
""" Graphics engine exception, MMU fault, stopped processing, preemptive removal, video processor, context switch. """

_MEANINGS = {
    48: "an error of two bits in its memory",
    62: "a halt of its microcontroller",
    63: "a row of its memory to be remapped",
    64: "a row of its memory that could not be remapped",
    74: "an error of an NVLink",
    79: "it has fallen off the bus",
    92: "many errors of one bit in its memory",
    94: "a contained memory error",
    95: "a memory error that was not contained",
    119: "its system processor (GSP) does not answer",
    120: "an error of its system processor (GSP)",
}


def sentence(xid: int) -> str:
    """Return the message for a GPU that had an Xid."""
    meaning = f" ({_MEANINGS[xid]})" if xid in _MEANINGS else ""
    return f"the driver reports Xid {xid}{meaning}; look in the kernel's log, and reset the GPU if the Xid occurs again"
