"""The worked examples of docs/gpushare.md have the numbers that the function `due` gives."""

import re
from pathlib import Path

import pytest

from orion.planning.sharing.due import Claim, due

PAGE = (Path(__file__).parents[2] / "docs" / "gpushare.md").read_text()
NUMBER = re.compile(r"\d+(?:\.\d+)?")
HP_IDLE_PART = 0.5


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the table of an example, without the row of titles."""
    example = PAGE.partition(f"### {heading}")[2].partition("\n##")[0]
    lines = re.findall(r"^\| (.*) \|$", example, re.MULTILINE)
    assert lines, heading
    return [[cell.strip() for cell in line.split(" |")] for line in lines[1:]]


def first(cell: str) -> float:
    return float(NUMBER.findall(cell)[0])


def result(cell: str) -> float:
    """Return the number behind the last `=`, or the only one."""
    return first(cell.rpartition("=")[2])


def claim(cell: str) -> Claim:
    return Claim(0.0 if cell == "none" else first(cell))


def test_example_1() -> None:
    table = rows("Example 1")
    claims = {name: claim(request) for name, request, _, _ in table}
    assert claims == {"a": Claim(0.4), "b": Claim(0.2), "c": Claim()}
    everyone = due(claims, HP_IDLE_PART)
    without_c = due(claims | {"c": Claim(wants=False)}, HP_IDLE_PART)
    for name, _, all_want, c_is_idle in table:
        assert result(all_want) == pytest.approx(everyone[name], abs=0.0005)
        assert first(c_is_idle) == pytest.approx(without_c[name], abs=0.0005)


def test_example_2() -> None:
    limited = Claim(0.2, limit=0.5)
    seen = []
    for beside, own, other in rows("Example 2"):
        requests = NUMBER.findall(beside)
        others = {} if beside == "nothing" else {"other": Claim(float(requests[0]) if requests else 0.0)}
        found = due({"own": limited} | others)
        assert first(own) == pytest.approx(found["own"], abs=0.0005)
        assert not others or first(other) == pytest.approx(found["other"], abs=0.0005)
        seen.append(found["own"])
    assert seen == pytest.approx([0.5, 0.2, 0.5, 0.25])


def test_example_3() -> None:
    table = rows("Example 3")
    claims = {name: claim(request) for name, request, _, _ in table}
    for part, column in ((1 - 0.9, 2), (HP_IDLE_PART, 3)):
        found = due(claims, part)
        for cells in table:
            assert first(cells[column]) == pytest.approx(found[cells[0]], abs=0.0005)


def test_requests_of_more_than_1_on_the_page() -> None:
    first_part, second_part = due({"a": Claim(0.8), "b": Claim(0.4)}).values()
    assert f"0.8 and 0.4 become {first_part:.3f} and {second_part:.3f}" in PAGE
