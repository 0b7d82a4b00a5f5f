"""Single-precision numbers, to which glet rounds times, shares of time and throughputs.

Some decisions depend on the last bit. numpy.float32 would do the same, at ten times the cost for single numbers.
"""

from struct import Struct

_SINGLE = Struct("f")
_pack, _unpack = _SINGLE.pack, _SINGLE.unpack


def single(value: float) -> float:
    """Return the single-precision number nearest to a value."""
    return _unpack(_pack(value))[0]  # type: ignore[no-any-return]
