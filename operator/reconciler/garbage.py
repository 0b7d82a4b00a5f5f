"""Keeps Python's collections of garbage so short that the event loop is not held up.

A collection looks at all objects of a generation, and the operator has millions of them: a full one takes seconds. Two
facts make full collections needless here. Almost all memory is freed without a collection, because records do not refer
to each other. And the objects that need one, kopf's views of an event, are garbage as soon as the event has been
handled, so that a collection of the young generations finds them. What survives those is never looked at again.

Rejected: `gc.freeze` after the start. The records are replaced one by one, so full collections take as long as before
after some hours.
"""

import gc

YOUNG = 5_000
""" How many objects are made, without those that were freed, until the youngest generation is collected. """
_MIDDLE = 3
_NEVER = 2**31 - 1


def collect_in_short_steps() -> None:
    """Set this for the whole process."""
    gc.set_threshold(YOUNG, _MIDDLE, _NEVER)
