"""Server-sent events and OpenAI-style streams, also odd ones."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orion.bench.loadgen.events import Completion, Events
from orion.errors import Unreadable


def _events(stream: bytes) -> list[str]:
    events = Events()
    return events.feed(stream) + events.end()


def _chunk(text: str | None, **more: object) -> bytes:
    return b"data: " + json.dumps({"choices": [{"delta": {"content": text}}], **more}).encode() + b"\n\n"


def _read(*pieces: bytes) -> Completion:
    """Read pieces that arrive one second apart, from second 1 on."""
    completion = Completion()
    for second, piece in enumerate(pieces, start=1):
        completion.feed(piece, float(second))
    completion.end(float(len(pieces)))
    return completion


@pytest.mark.parametrize(
    ("stream", "data"),
    [
        (b"data: a\n\ndata: b\n\n", ["a", "b"]),
        (b"data:a\r\n\r\ndata:  b\r\rdata: c\n\n", ["a", " b", "c"]),
        (b": a comment\n\nevent: x\nid: 1\nretry: 5\ndata: a\n\n", ["a"]),
        (b"data: a\ndata: b\ndata\ndata:\n\n", ["a\nb\n\n"]),
        (b"\xef\xbb\xbfdata: a\n\n\n\n", ["a"]),
        (b"data: a\n\ndata: the last line has no end", ["a", "the last line has no end"]),
        (b"data: \xff\n\n", ["\ufffd"]),
        (b"database: a\n\nno colon\n\n", []),
        (b"", []),
    ],
)
def test_events_are_read_as_the_standard_says(stream: bytes, data: list[str]) -> None:
    assert _events(stream) == data


LINES = st.lists(
    st.sampled_from(["data: a", "data:é😀", "data", "", "", ": comment", "event: x", "data: 1: 2"]), max_size=12
)


@given(LINES, st.lists(st.sampled_from(["\n", "\r\n", "\r"]), min_size=12, max_size=12), st.sets(st.integers(0, 200)))
def test_the_pieces_in_which_bytes_arrive_change_nothing(lines: list[str], ends: list[str], cuts: set[int]) -> None:
    stream = "".join(line + end for line, end in zip(lines, ends, strict=False)).encode()
    edges = [0, *sorted(cut for cut in cuts if cut < len(stream)), len(stream)]
    events, found = Events(), list[str]()
    for low, high in itertools.pairwise(edges):
        found += events.feed(stream[low:high])
    assert found + events.end() == _events(stream)


@given(LINES)
def test_the_kind_of_line_end_changes_nothing(lines: list[str]) -> None:
    assert len({tuple(_events(end.join([*lines, ""]).encode())) for end in ("\n", "\r\n", "\r")}) == 1


def test_the_first_and_the_last_content_are_timed_and_counted() -> None:
    first = b'data: {"choices": [{"delta": {"role": "assistant", "content": ""}}]}\n\n'
    last = b'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
    found = _read(first, _chunk("a"), _chunk(None), _chunk("b"), _chunk("c"), last)
    assert (found.first_s, found.last_s, found.tokens) == (2.0, 5.0, 3)


@pytest.mark.parametrize(
    "content",
    [
        {"text": "a"},
        {"delta": {"reasoning_content": "a"}},
        {"delta": {"tool_calls": [{"index": 0}]}},
        {"delta": {"role": "assistant", "content": "a"}},
    ],
)
def test_text_reasoning_and_calls_of_tools_are_content(content: object) -> None:
    assert _read(b"data: " + json.dumps({"choices": [content]}).encode() + b"\n\n").chunks == 1


@pytest.mark.parametrize(
    "chunk",
    [
        {"choices": [], "prompt_filter_results": []},
        {"choices": None},
        {"choices": [{"delta": None}]},
        {"choices": [{"text": ""}]},
        {"choices": ["?"]},
        {"usage": {"completion_tokens": None}},
        {"object": "ping", "error": None},
    ],
)
def test_a_chunk_without_content_counts_no_token(chunk: object) -> None:
    found = _read(b"data: " + json.dumps(chunk).encode() + b"\n\n")
    assert (found.tokens, found.first_s, found.last_s) == (0, None, None)


def test_the_servers_own_count_of_tokens_is_taken_where_it_gives_one() -> None:
    usage = b'data: {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 7}}\n\n'
    assert _read(_chunk("two tokens", usage=None), _chunk("b"), usage, b"data: [DONE]\n\n").tokens == 7


def test_what_follows_the_end_mark_does_not_count() -> None:
    assert _read(_chunk("a"), b"data: [DONE]\n\ndata: ?\n\n", _chunk("b")).tokens == 1


@pytest.mark.parametrize(
    "stream",
    [
        b"",
        b": only a comment\n\n",
        b"<html></html>",
        b"data: no JSON\n\n",
        b"data: 5\n\n",
        b'data: {"error": {"message": "the model crashed"}}\n\n',
        b'data: {"object": "error", "message": "?"}\n\n',
    ],
)
def test_a_stream_that_is_no_completion_is_broken(stream: bytes) -> None:
    with pytest.raises(Unreadable):
        _read(stream)
