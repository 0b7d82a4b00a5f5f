"""Amounts of memory on the command line: what `parse_size` accepts, and what `format_size` prints."""

import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orion.cli.sizes import format_size, parse_size
from orion.crds.quantities import Memory


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1073741824", 1 << 30),
        ("8GiB", 8 << 30),
        ("8Gi", 8 << 30),
        ("8G", 8_000_000_000),
        ("8GB", 8_000_000_000),
        ("1.5 GiB", 3 << 29),
        ("512MB", 512_000_000),
        ("2T", 2_000_000_000_000),
    ],
)
def test_all_notations_of_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["8Gi", "8GiB", "512M", "512MB", "1.5Gi", "4294967296", "3e9", "2Ti", "2TiB"])
def test_a_size_means_the_same_as_in_a_gpushare(text: str) -> None:
    assert parse_size(text) == Memory(text).bytes


@pytest.mark.parametrize(
    "text", ["", "GiB", "-1", "8Q", "8gib", "0", "512m", "100", "8 GiB please", "99999999TiB", "0x10"]
)
def test_a_text_that_is_not_a_size_is_rejected_with_the_text(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(text)) + " must be an amount of memory"):
        parse_size(text)


@given(st.text(max_size=20))
def test_no_text_crashes_the_parser(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert 0 < parse_size(text) < 1 << 64


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (3 << 29, "1.5 GiB"),
        (141 << 30, "141 GiB"),
        (2 << 40, "2.0 TiB"),
    ],
)
def test_sizes_for_people(size: int, text: str) -> None:
    assert format_size(size) == text
