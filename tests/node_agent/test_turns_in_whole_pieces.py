"""Turns hold whole pieces of long work."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orion.node_agent.sharing.turn_lengths import in_whole_pieces

MS = 1_000_000


@pytest.mark.parametrize(
    ("lengths", "pieces", "fitted"),
    [
        ((7, 7, 7), (0, 5, 0), (8, 5, 8)),
        ((10, 10), (7, 0), (7, 13)),
        ((10, 10), (6, 0), (12, 8)),
        ((10, 10), (0.3, 0), (10, 10)),  # short pieces
        ((10, 10), (9, 0), (9, 11)),
        ((10, 10), (11, 0), (10, 10)),  # not one piece in a turn
        ((10, 10), (3, 4), (9, 8)),  # only whole pieces: the rest of the cycle stays empty
        ((10, 10), (6, 6), (10, 10)),  # both would not fit
        ((16, 2), (12, 0), (12, 6)),
        ((11, 2), (7, 0), (11, 2)),  # nothing would be left for the other
    ],
)
def test_turns_hold_whole_pieces(
    lengths: tuple[float, ...], pieces: tuple[float, ...], fitted: tuple[float, ...]
) -> None:
    named = {str(index): length * MS for index, length in enumerate(lengths)}
    longest = {str(index): int(piece * MS) for index, piece in enumerate(pieces)}
    found = in_whole_pieces(named, longest, sum(named.values()))
    assert [found[str(index)] / MS for index in range(len(lengths))] == pytest.approx(fitted)


@given(
    st.lists(st.tuples(st.floats(0.8e6, 1e9), st.integers(0, 1 << 64)), min_size=1, max_size=6),
    st.floats(1.0, 2.0),
)
def test_turns_stay_within_the_cycle(slots: list[tuple[float, int]], room: float) -> None:
    lengths = {str(index): length for index, (length, _) in enumerate(slots)}
    pieces = {str(index): piece for index, (_, piece) in enumerate(slots)}
    usable = sum(lengths.values()) * room
    found = in_whole_pieces(lengths, pieces, usable)
    assert found.keys() == lengths.keys()
    assert sum(found.values()) <= usable * (1 + 1e-9)
    assert all(found[name] >= lengths[name] / 2 * (1 - 1e-9) for name in lengths)
