"""Any text becomes rules or an error with a line; what is valid is read as it was written."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orion.errors import Unreadable
from orion.node_agent.resource_files.parsing import SIZE_MAX, parse, size
from orion.node_agent.resource_files.rules import MEMORY_LEAST, MEMORY_MOST, Rule

GIB = 1 << 30
# Parts in thousandths: the pages have no finer steps.
PARTS = st.integers(1, 1_000)
IDS = st.from_regex(r"[A-Za-z0-9_./-]{1,40}", fullmatch=True)


@st.composite
def rules(draw: st.DrawFn) -> list[tuple[str, float, float, int]]:
    """Ids with request, limit and memory."""
    made = []
    for name in draw(st.lists(IDS, unique=True, max_size=6)):
        request, limit = sorted((draw(PARTS), draw(PARTS)))
        made.append((name, request / 1_000, limit / 1_000, draw(st.integers(MEMORY_LEAST, MEMORY_MOST))))
    return made


def version_1(wanted: list[tuple[str, float, float, int]]) -> bytes:
    return "".join([f"{len(wanted)}\n", *(" ".join(map(str, each)) + "\n" for each in wanted)]).encode()


def version_2(wanted: list[tuple[str, float, float, int]]) -> bytes:
    groups = [
        f"[{name}]\nMinUtil = {request}\nMaxUtil={limit}  # at most\n\nMemoryLimit = {memory}\n"
        for name, request, limit, memory in wanted
    ]
    return "".join(["# of Gemini 2\n", *groups]).encode()


def plain(found: tuple[Rule, ...]) -> list[tuple[str, float | None, float, int]]:
    return [(rule.id, rule.request, rule.limit, rule.memory_limit_bytes) for rule in found]


def refused(data: bytes) -> str:
    with pytest.raises(Unreadable) as error:
        parse(data, "/etc/file")
    return str(error.value)


@given(rules())
def test_both_forms_are_read_as_they_were_written(wanted: list[tuple[str, float, float, int]]) -> None:
    assert plain(parse(version_1(wanted), "")) == wanted
    assert plain(parse(version_2(wanted), "")) == wanted


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused_with_a_line(data: bytes) -> None:
    sentence = ""
    try:
        parse(data, "/etc/file")
    except Unreadable as error:
        sentence = str(error)
    if sentence:
        found = re.match(r"/etc/file, line (\d+): ", sentence)
        assert found
        assert 1 <= int(found[1]) <= data.count(b"\n") + 1
        assert sentence.isprintable()


@given(st.lists(st.sampled_from(["2", "a", "[a]", "0.5", "NaN", "=", "MinUtil", "MaxUtil", "9999999", "#", "\n"])))
def test_any_plausible_words_are_read_or_refused(words: list[str]) -> None:
    try:
        found = parse(" ".join([*words, "\n"]).encode(), "")
    except Unreadable:
        return
    assert len({rule.id for rule in found}) == len(found)
    assert all(rule.request is None or 0 < rule.request <= rule.limit <= 1 for rule in found)


@given(rules(), st.data())
def test_a_part_of_version_1_is_never_read_as_something_else(
    wanted: list[tuple[str, float, float, int]], data: st.DataObject
) -> None:
    whole = version_1(wanted)
    assert refused(whole[: data.draw(st.integers(0, len(whole) - 1))])


@given(rules(), st.data())
def test_a_part_of_a_line_of_version_2_is_refused(
    wanted: list[tuple[str, float, float, int]], data: st.DataObject
) -> None:
    whole = version_2(wanted)
    part = whole[: data.draw(st.integers(0, len(whole) - 1))]
    if not part.endswith(b"\n"):
        assert refused(part)


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        pytest.param("3\na 0.1 0.2 9999999\n", 1, "3 ids, and 1 line follows", id="too few"),
        pytest.param("1\na 0.1 0.2 9999999\nb 0.1 0.2 9999999\n", 1, "1 id, and 2 lines follow", id="too many"),
        pytest.param("2\na 0.1 0.2 9999999\na 0.1 0.2 9999999\n", 3, "the id a is in line 2 already", id="doubled"),
        pytest.param("1\na 0.8 0.5 9999999\n", 2, "exchange the two numbers (KubeShare's", id="the other way round"),
        pytest.param("1\na 0 0.5 9999999\n", 2, "REQUEST cannot be '0'", id="zero"),
        pytest.param("1\na 1.5 1.5 9999999\n", 2, "REQUEST cannot be '1.5'", id="two GPUs"),
        pytest.param("1\na NaN 0.5 9999999\n", 2, "REQUEST cannot be 'NaN'", id="NaN"),
        pytest.param("1\na 0.5 -inf 9999999\n", 2, "LIMIT cannot be '-inf'", id="infinite"),
        pytest.param("1\na 0.5 0.5 0\n", 2, "GPU_MEM cannot be '0'", id="no memory"),
        pytest.param("1\na 0.5 0.5\n", 2, "3 words, not 4", id="words"),
        pytest.param("1\na 0.5 0.5 9999", 2, "does not end", id="half a line"),
        pytest.param("\n\nclients\n", 3, "neither the number of ids", id="neither form"),
        pytest.param("\n", 1, "is empty", id="empty"),
        pytest.param("1\na\0 0.5 0.5 9999999\n", 2, "the byte 00", id="binary"),
        pytest.param("[a]\nMinUtil = 0\n", 2, "MinUtil cannot be '0'", id="zero in a group"),
        pytest.param("[a]\nMaxUtil = 1.01\n", 2, "MaxUtil cannot be '1.01'", id="over 1"),
        pytest.param("[a]\nMinUtil = 0.5\nMaxUtil = 0.4\n", 2, "above limit 0.4", id="order"),
        pytest.param("[a]\nMinutil = 0.5\n", 2, "write MinUtil, MaxUtil, MemoryLimit", id="no such setting"),
        pytest.param("[a]\nMinUtil = 0.5\nMinUtil = 0.4\n", 3, "MinUtil is in line 2 already", id="twice"),
        pytest.param("[a]\nMemoryLimit = 2 potatoes\n", 2, "'2 potatoes'", id="potatoes"),
        pytest.param("[a]\n\n[a]\n", 3, "the id a is in line 1 already", id="doubled group"),
        pytest.param("# x\nMinUtil = 0.5\n", 2, "before the first group", id="no group"),
        pytest.param("[a\n", 1, "is no group", id="half a group"),
        pytest.param("[]\n", 1, "name cannot be ''", id="no name"),
    ],
)
def test_an_error_names_the_line_and_what_is_wrong(text: str, line: int, says: str) -> None:
    sentence = refused(text.encode())
    assert sentence.startswith(f"/etc/file, line {line}: ")
    assert says in sentence


def test_gemini_s_own_examples() -> None:
    found = parse(b"2\nclient1 0.5 0.5 327374182400\nclient2 0.5 0.5 327374182400\n", "")
    assert plain(found) == [(f"client{number}", 0.5, 0.5, 327_374_182_400) for number in (1, 2)]
    text = (
        b"[client1]\nMinUtil = 0.1\nMaxUtil = 0.5\nMemoryLimit = 2G\n\n[client2]\nMaxUtil = 0.8\nMemoryLimit = 3GiB\n"
    )
    assert plain(parse(text + b"\n[client3]\nMemoryLimit = 3GB\n\n[client4]\nMaxUtil = 0.3\n", "")) == [
        ("client1", 0.1, 0.5, 2_000_000_000),
        ("client2", None, 0.8, 3 * GIB),
        ("client3", None, 1.0, 3_000_000_000),
        ("client4", None, 0.3, GIB),
    ]


@pytest.mark.parametrize(
    ("text", "amount"),
    [("7", 7), ("7B", 7), ("7K", 7_000), ("7 KB", 7_000), ("7Ki", 7_168), ("7MiB", 7 << 20), ("7TB", 7 * 10**12)],
)
def test_sizes_are_decimal_or_binary(text: str, amount: int) -> None:
    assert size(text) == amount


@pytest.mark.parametrize("text", ["", "G", "1.5G", "-1", "2g", "2GiBs", "1iB"])
def test_other_text_is_no_size(text: str) -> None:
    assert size(text) == text


def test_a_file_has_bounds() -> None:
    assert f"more than {SIZE_MAX} bytes" in refused(b"0\n" + b" " * SIZE_MAX)
    assert "more than 1000 ids" in refused("".join(f"[{number}]\n" for number in range(1_001)).encode())
