"""Parses lists of objects without holding the event loop: a user may have written each object as large as can be."""

import asyncio
import json
import re
from typing import Any

_AT_ONCE = 64 * 2**10
""" Characters that are parsed without a pause, or one object if it is larger. They take 1 to 3 ms. """
_decode = json.JSONDecoder().raw_decode
_between = re.compile(r"[\s,:]*")


async def parsed(text: str) -> dict[str, Any]:
    """Return a list as parsed JSON.

    Raises:
        ValueError: the text is not a JSON object.
    """
    found: dict[str, Any] = {}
    at = _next(text, text.index("{") + 1)
    while not text.startswith("}", at):
        name, at = _decode(text, at)
        at = _next(text, at)
        found[name], at = await _items(text, at + 1) if text.startswith("[", at) else _decode(text, at)
        at = _next(text, at)
    return found


async def _items(text: str, at: int) -> tuple[list[Any], int]:
    """Return the items of an array, and the index after its end."""
    items, paused_at = [], at
    at = _next(text, at)
    while not text.startswith("]", at):
        item, at = _decode(text, at)
        items.append(item)
        at = _next(text, at)
        if at - paused_at > _AT_ONCE:
            paused_at = at
            await asyncio.sleep(0)
    return items, at + 1


def _next(text: str, at: int) -> int:
    """Return the index of the next value, or of the end of an object or array."""
    found = _between.match(text, at)
    assert found is not None
    return found.end()
