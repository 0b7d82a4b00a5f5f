"""Server-sent events, and the times and tokens of an OpenAI-style stream.

Events are read as the HTML standard defines them: lines end with LF, CRLF or CR, comments begin with a colon, several
data lines make one event. The parser works on bytes, so that a character that arrives in two pieces stays whole. An
event without the empty line at its end counts too, because some servers end their last event without that line.
"""

import json
from typing import Any

from orion.errors import Unreadable

DONE = "[DONE]"


class Events:
    """Splits the bytes of a stream into events."""

    def __init__(self) -> None:
        self._rest = b""
        self._after_cr = False
        self._data: list[bytes] = []
        self._is_first = True

    def feed(self, piece: bytes) -> list[str]:
        """Return the data of the events that end in this piece."""
        if self._after_cr and piece:
            piece = piece.removeprefix(b"\n")
            self._after_cr = False
        if not piece:
            return []
        if b"\r" in piece:
            self._after_cr = piece.endswith(b"\r")
            piece = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, self._rest = (self._rest + piece).split(b"\n")
        return [data for line in lines if (data := self._line(line)) is not None]

    def end(self) -> list[str]:
        """Return the data of the event that the end of the stream cuts off."""
        return self.feed(b"\n\n")

    def _line(self, line: bytes) -> str | None:
        if self._is_first:
            line, self._is_first = line.removeprefix(b"\xef\xbb\xbf"), False
        if not line:
            if not self._data:
                return None
            data, self._data = b"\n".join(self._data), []
            return data.decode("utf-8", "replace")
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
        return None


class Completion:
    """Collects the times of a stream's tokens. Times are seconds on any one clock.

    Attributes:
        first_s: when the first content arrived; None before that.
        last_s: when the last content arrived.
        chunks: the number of events with content.
        events: the number of all events.
    """

    def __init__(self) -> None:
        self.first_s: float | None = None
        self.last_s: float | None = None
        self.chunks = 0
        self.events = 0
        self._counted: int | None = None
        self._is_done = False
        self._events = Events()

    @property
    def tokens(self) -> int:
        """The number of tokens as the server counts them (`usage`), otherwise one for each chunk with content."""
        return self.chunks if self._counted is None else self._counted

    def feed(self, piece: bytes, now_s: float) -> None:
        """Read bytes that arrived at `now_s`.

        Raises:
            Unreadable: an event is not OpenAI-style, or reports an error.
        """
        for data in self._events.feed(piece):
            self._event(data, now_s)

    def end(self, now_s: float) -> None:
        """Read what the end of the stream cuts off.

        Raises:
            Unreadable: as `feed`; or the stream had no event at all.
        """
        for data in self._events.end():
            self._event(data, now_s)
        if not self.events:
            raise Unreadable("the answer holds no server-sent event")

    def _event(self, data: str, now_s: float) -> None:
        self.events += 1
        if self._is_done or data.strip() == DONE:
            self._is_done = True
            return
        chunk = _chunk(data)
        usage = chunk.get("usage")
        if isinstance(usage, dict) and isinstance(usage.get("completion_tokens"), int):
            self._counted = usage["completion_tokens"]
        if _has_content(chunk.get("choices")):
            self.chunks += 1
            self.last_s = now_s
            if self.first_s is None:
                self.first_s = now_s


def _chunk(data: str) -> dict[str, Any]:
    try:
        chunk = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"an event is not JSON: {data[:40]!r}") from error
    if not isinstance(chunk, dict):
        raise Unreadable(f"an event is not a JSON object: {data[:40]!r}")
    if chunk.get("error") or chunk.get("object") == "error":
        raise Unreadable(f"the server reports an error: {data[:200]}")
    return chunk


def _has_content(choices: object) -> bool:
    """Return whether a choice adds text: of a completion, or any part of a chat's delta except the role."""
    for choice in choices if isinstance(choices, list) else ():
        if not isinstance(choice, dict):
            continue
        if choice.get("text"):
            return True
        delta = choice.get("delta")
        if isinstance(delta, dict) and any(value for name, value in delta.items() if name != "role"):
            return True
    return False
