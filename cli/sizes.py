"""Amounts of memory as people write them."""

import re

_UNITS = {"": 1, "b": 1}
for _power, _letter in enumerate("kmgt", start=1):
    _UNITS[f"{_letter}ib"] = _UNITS[f"{_letter}i"] = 1024**_power
    _UNITS[f"{_letter}b"] = _UNITS[_letter] = 1000**_power
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", re.IGNORECASE)


def parse_size(text: str) -> int:
    """Return the bytes that ``8GiB``, ``8Gi``, ``512MB`` or ``1073741824`` means.

    Raises:
        ValueError: with a sentence that names what is allowed.
    """
    match = _SIZE.fullmatch(text)
    if match is None or match[2].lower() not in _UNITS:
        raise ValueError(f"{text!r} is not a size such as 8GiB, 512MiB, 4GB or a number of bytes")
    size = int(float(match[1]) * _UNITS[match[2].lower()])
    if not 0 < size < 1 << 64:
        raise ValueError(f"{text!r} is not a size between 1 byte and 2^64 bytes")
    return size


def format_size(size: int) -> str:
    """Return bytes in the largest binary unit that leaves at least one of it, such as ``1.5 GiB``."""
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"
