"""No bytes that a tenant can write crash a parser or a reader of a page."""

from ctypes import sizeof

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orion.errors import Invalid
from orion.hook import join, layout
from orion.node_agent.clients import messages
from orion.node_agent.pages import client_pages

# A page repeats a short piece, because hypothesis could not shrink whole pages of random bytes.
PAGE = st.binary(min_size=1, max_size=512).map(
    lambda piece: (piece * (layout.PAGE_SIZE // len(piece) + 1))[: layout.PAGE_SIZE]
)
HEAD = st.builds(
    lambda magic, kind: magic.to_bytes(4, "little") + kind.to_bytes(4, "little"),
    st.sampled_from([join.MESSAGE_MAGIC, 0]),
    st.integers(0, 20),
)
LENGTHS = st.sampled_from([0, 8, 120, 56, sizeof(join.Neighbours) - 8])


@given(st.binary(max_size=join.MESSAGE_MAX + 1))
def test_any_bytes_are_parsed_or_rejected(data: bytes) -> None:
    _parse(data)


@given(HEAD, st.data())
def test_any_body_after_a_plausible_head_is_parsed_or_rejected(head: bytes, data: st.DataObject) -> None:
    length = data.draw(LENGTHS)
    _parse(head + data.draw(st.binary(min_size=length, max_size=length)))


def _parse(data: bytes) -> None:
    returns = messages.returns(data)
    try:
        message = messages.parse(data)
    except Invalid:
        assert not returns
        return
    assert bytes(message) == data
    if isinstance(message, join.Hello):
        client_pages.printable(message.command, 16)
    if isinstance(message, join.Report):
        client_pages.printable(message.text, 112)


@given(st.binary(max_size=200), st.integers(0, 200))
def test_text_becomes_printable_and_short(raw: bytes, limit: int) -> None:
    text = client_pages.printable(raw, limit)
    assert len(text) <= limit
    assert text == "" or text.isprintable()
    assert text.isascii()


@given(PAGE, st.integers(0, 2**64))
def test_any_record_page_can_be_read(content: bytes, now: int) -> None:
    page = client_pages.RecordPage(memoryview(content))
    record = page.read()
    raw = layout.RecordPage.from_buffer_copy(content)
    assert all(getattr(record, name) == getattr(raw, name) for name in client_pages.RECORD_FIELDS)
    assert list(record.wait_bucket) == list(raw.wait_bucket)
    assert page.launches == raw.launches
    assert page.busy_ns(now) >= raw.busy_ns
    assert page.wants_gpu in (True, False)
    page.busy_periods(max(0, now - 100), now, layout.BUSY_PERIODS)


@pytest.mark.parametrize("in_flight", [0, 1])
@pytest.mark.parametrize("state", list(layout.ParkingState))
def test_who_is_not_in_the_gpus_memory_wants_the_gpu_only_for_work_in_flight(
    state: layout.ParkingState, in_flight: int
) -> None:
    """Its launches wait until it is back, not for its turn: a turn would be of no use to it."""
    away = (layout.ParkingState.LEAVING, layout.ParkingState.PARKED, layout.ParkingState.RETURNING)
    raw = layout.RecordPage(waiting_since_ns=1, in_flight_ns=in_flight, parking=5 << 32 | state)
    page = client_pages.RecordPage(memoryview(bytes(raw)))
    assert page.wants_gpu == (state not in away or bool(in_flight))


@given(PAGE)
def test_any_busy_page_can_be_read(content: bytes) -> None:
    page = client_pages.BusyPage(memoryview(content))
    raw = layout.BusyPage.from_buffer_copy(content)
    assert page.state == (raw.state if raw.state <= 3 else layout.BusyState.BUSY)
    assert (page.progress, page.owner_died) == (raw.progress, bool(raw.alive & layout.FUTEX_OWNER_DIED))


@given(st.text(max_size=300), st.sampled_from(list(join.Refusal)), st.integers(0, 2**32 - 1))
def test_any_refusal_can_be_built(sentence: str, code: join.Refusal, retry_ms: int) -> None:
    message = join.Refused.from_buffer_copy(messages.refused(code, sentence, retry_ms))
    assert (message.code, message.retry_ms) == (code, retry_ms)


@given(st.lists(st.tuples(st.integers(0, 511), st.integers(1, 2**32 - 1)), max_size=join.FDS_MAX))
def test_client_indexes_are_listed(keys: list[tuple[int, int]]) -> None:
    message = join.Gone.from_buffer_copy(messages.listing(join.MessageType.GONE, keys))
    assert [(each.client_index, each.generation) for each in message.places[: message.count]] == keys
