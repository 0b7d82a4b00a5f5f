"""Numbers in text. Each function raises a ValueError whose text is the reason that a line is skipped."""

import math
import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

MOST = 1e15
""" A larger figure is a mistake: 1e15 s are 31 million years. """
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?\s*(Z|[+-]\d\d:?\d\d)?", re.ASCII
)  # fmt: skip
_SECOND_NS = 1_000_000_000


def number(text: str, what: str, least: float = 0.0) -> float:
    """Return a number that is `least` or more."""
    text = text.strip()
    found = float(text) if len(text) <= 64 and _NUMBER.fullmatch(text) else math.nan
    if math.isnan(found):
        raise ValueError(f"{what} is {shown(text)}, which is no number")
    if not least <= found <= MOST:
        raise ValueError(f"{what} is {shown(text)}, and must be from {least:g} to {MOST:g}")
    return found


def whole(text: str, what: str, least: int = 0) -> int:
    """Return a whole number that is `least` or more; `5.0` counts as a whole number."""
    stripped = text.strip()
    if stripped.isascii() and stripped.isdigit() and len(stripped) < 16:
        found = int(stripped)
        if found >= least:
            return found
    given = number(text, what, least)
    if given != int(given):
        raise ValueError(f"{what} is {shown(stripped)}, which is no whole number")
    return int(given)


def instant_ns(text: str) -> int:
    """Return nanoseconds since 1970 of `YYYY-MM-DD HH:MM:SS`, with up to nine decimals; UTC if it has no offset."""
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"the time is {shown(text)}, and must be like 2023-11-16 18:15:46.6805900")
    day, time, decimals, offset = match.groups()
    return _seconds(day, time, offset or "") * _SECOND_NS + int((decimals or "").ljust(9, "0"))


@lru_cache(maxsize=1024)
def _seconds(day: str, time: str, offset: str) -> int:
    try:
        moment = datetime.strptime(f"{day} {time}", "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
    except ValueError:
        raise ValueError(f"the time is {shown(f'{day} {time}')}, which is not in the calendar") from None
    ahead_min = 0
    if offset[:1] in ("+", "-"):
        ahead_min = (int(offset[1:3]) * 60 + int(offset[-2:])) * (-1 if offset[0] == "-" else 1)
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1) - ahead_min * 60


def shown(text: str) -> str:
    """Return text in quotation marks, cut to forty characters."""
    return repr(text if len(text) <= 40 else f"{text[:37]}...")
