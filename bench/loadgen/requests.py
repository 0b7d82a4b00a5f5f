"""What a run sends: method, headers and body; for language models, requests as OpenAI's interface defines them."""

import json
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orion.errors import Invalid, Unreadable

PROMPT_TOKENS, OUTPUT_TOKENS = 500, 200
""" The lengths of a generated request that no trace and no body defines. """
_WORDS = (
    "the of and to in is that it was for on are with as they be at one have this from by hot but some what there we "
    "can out other were all your when up use word how said an each which do time will way about many then them would "
    "like"
)
""" Words that are one token each in the usual vocabularies. """
_TEXT_WORDS = 1 << 12
_UNIQUE_WORDS = 8
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

Bodies = Callable[[int], bytes | None]
""" Returns the body of the request with this number. """


@dataclass(frozen=True)
class Target:
    """Where requests go, and what they carry.

    Attributes:
        url: http or https, with a host.
        method: GET or POST.
        headers: of every request.
        body: the body of each request.
        is_stream: whether the answers are OpenAI-style streams.
    """

    url: str
    method: str
    headers: dict[str, str]
    body: Bodies
    is_stream: bool


def target(url: str, headers: Sequence[str], body: Path | None, completion: "Completions | None") -> Target:
    """Return what a run sends.

    Args:
        url: as the user gives it.
        headers: lines `Name: value`.
        body: a file with the body of each request; None: no body.
        completion: makes the bodies of requests to a language model; it replaces `body`.

    Raises:
        Invalid: the URL or a header is wrong.
        Unreadable: the body cannot be read.
    """
    found = _headers(headers)
    if completion is not None:
        default = {"Content-Type": "application/json", "Accept": "text/event-stream"}
        return Target(_checked(url), "POST", _with(default, found), completion.body, is_stream=True)
    if body is None:
        return Target(_checked(url), "GET", found, lambda row: None, is_stream=False)
    content = read(body)
    kind = "application/octet-stream" if _json(content) is None else "application/json"
    return Target(_checked(url), "POST", _with({"Content-Type": kind}, found), lambda row: content, is_stream=False)


class Completions:
    """Makes the bodies of requests to a language model.

    A prompt has about one word for each token. Each prompt begins with other words than the others, so that a server's
    cache of prefixes saves no work.

    Args:
        url: if its path ends with /completions but not with /chat/completions, the prompt is plain text; otherwise, it
            is the message of a chat.
        template: fields of every request; None: none. A prompt or `max_tokens` in the template stays unless `tokens`
            defines it.
        model: the field `model`; empty: the template's.
        tokens: prompt and output tokens of each request; empty: the template's prompt and `max_tokens`, or
            `PROMPT_TOKENS` and `OUTPUT_TOKENS`.
        seed: of the words.
    """

    def __init__(
        self, url: str, template: dict[str, Any] | None, model: str, tokens: Sequence[tuple[int, int]], seed: int
    ) -> None:
        self._fields = {"model": "default", **(template or {}), "stream": True}
        self._fields.setdefault("stream_options", {"include_usage": True})
        if model:
            self._fields["model"] = model
        path = url.partition("?")[0].rstrip("/")
        is_text = path.endswith("/completions") and not path.endswith("/chat/completions")
        self._key = "prompt" if is_text else "messages"
        self._tokens = tokens
        self._draw, self._words = random.Random(seed), _WORDS.split()
        self._text = self._draw.choices(self._words, k=_TEXT_WORDS)

    def body(self, row: int) -> bytes:
        """Return the JSON body of a request."""
        fields = dict(self._fields)
        prompt_tokens, output_tokens = self._tokens[row] if self._tokens else (PROMPT_TOKENS, OUTPUT_TOKENS)
        if self._tokens or "max_tokens" not in fields:
            fields["max_tokens"] = max(1, output_tokens)
        if self._tokens or self._key not in fields:
            prompt = self._prompt(max(1, prompt_tokens))
            fields[self._key] = prompt if self._key == "prompt" else [{"role": "user", "content": prompt}]
        return json.dumps(fields).encode()

    def _prompt(self, tokens: int) -> str:
        words = self._draw.choices(self._words, k=min(tokens, _UNIQUE_WORDS))
        while len(words) < tokens:
            words += self._text[: tokens - len(words)]
        return " ".join(words)


def template(body: Path) -> dict[str, Any]:
    """Return the JSON object of a file.

    Raises:
        Unreadable: the file cannot be read, or holds no JSON object.
    """
    found = _json(read(body))
    if not isinstance(found, dict):
        raise Unreadable(f"{body} holds no JSON object: give the fields of a request, or leave --body out")
    return found


def read(body: Path) -> bytes:
    """Return the content of a file.

    Raises:
        Unreadable: the file cannot be read.
    """
    try:
        return body.read_bytes()
    except OSError as error:
        raise Unreadable(f"{body} cannot be read: {error.strerror or error}; check the path") from error


def _json(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def _checked(url: str) -> str:
    from yarl import URL

    try:
        found = URL(url)
        is_known = found.scheme in ("http", "https") and bool(found.host)
    except ValueError:
        is_known = False
    if not is_known:
        raise Invalid(f"the URL cannot be {url!r}: give one such as http://127.0.0.1:8000/v1/completions")
    return url


def _headers(lines: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not _HEADER_NAME.fullmatch(name.strip()) or not value.isprintable():
            raise Invalid(f"--header cannot be {line!r}: give a name and a value, such as 'Authorization: Bearer KEY'")
        found[name.strip()] = value.strip()
    return found


def _with(defaults: dict[str, str], given: dict[str, str]) -> dict[str, str]:
    names = {name.lower() for name in given}
    return {name: value for name, value in defaults.items() if name.lower() not in names} | given
