"""The generator of the field tables in docs/: each field has a described row, and the check names outdated pages."""

import re
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import pytest
from pydantic import Field

from orion.crds import reference, share
from orion.crds.durations import Duration
from orion.crds.generate import KINDS
from orion.crds.kinds import Kind
from orion.crds.model import Model
from orion.crds.quantities import Quantity
from orion.crds.schema import structural


def fields_of(node: dict[str, Any], path: str) -> Iterator[str]:
    for name, part in node.get("properties", {}).items():
        yield f"{path}.{name}"
        yield from fields_of(part.get("items", part), f"{path}.{name}")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_field_of_a_definition_has_a_row(kind: Kind) -> None:
    text = reference.Reference(kind).text()
    rows = set(re.findall(r"(?m)^\| `(\w+)` \|", text))
    parts = structural(kind.model)["properties"]
    wanted = {path for part in ("spec", "status") if part in parts for path in fields_of(parts[part], part)}
    assert rows == {path.rpartition(".")[2] for path in wanted}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_row_has_a_description_and_every_link_leads_to_a_table(kind: Kind) -> None:
    text = reference.Reference(kind).text()
    undescribed = re.findall(r"(?m)^\| `\w+` \|.*\|\s*\|$", text)
    assert [row for row in undescribed if "unit:" not in row] == []
    headings = {reference._anchor(heading) for heading in re.findall(r"(?m)^### (.*)$", text)}
    assert set(re.findall(r"\(#([^)]+)\)", text)) <= headings


class Below(Model):
    """A nested model."""

    size: Quantity
    """ A size. Unit: bytes. """


class Sample(Model):
    """A sample."""

    name: Annotated[str, Field(max_length=9)] = "x"
    """ A name | a word. """

    waits: Annotated[Duration, share._time("1us", "1s", "2ms")] | None = None
    """ How long it
    waits. Unit: a duration such as 2ms. Default: 5ms: half of 10. Larger: more. """

    below: list[Below] | None = None
    """ Others. """

    first: Below
    """ One more. Required; it stays. """


def test_a_table_has_bounds_units_and_defaults_in_columns_of_their_own() -> None:
    made = reference.Reference(share.KIND)
    made._table(Sample, "spec")
    assert made.lines == [
        "### spec", "", "A sample.", "", "| field | value | default | meaning |", "|---|---|---|---|",
        r"| `name` | text, at most 9 characters | `x` | A name \| a word. |",
        "| `waits` | duration, 1us to 1s, such as `2ms` | 5ms: half of 10 | How long it waits. Larger: more. |",
        "| `below` | list of [spec.below[]](#specbelow) |  | Others. |",
        "| `first` | [spec.below[]](#specbelow) | required; it stays | One more. |",
        "", "### spec.below[]", "", "A nested model.", "",
        "| field | value | default | meaning |", "|---|---|---|---|",
        "| `size` | quantity; unit: bytes | required | A size. |", "",
    ]  # fmt: skip


def test_the_check_names_an_outdated_page(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    monkeypatch.setattr(reference, "FOLDER", tmp_path)
    for kind in KINDS:
        (tmp_path / f"{kind.singular}.md").write_text(f"# A\n\n{reference.BEGIN}\n{reference.END}\n\nAfter.\n")
    monkeypatch.setattr(sys, "argv", ["reference", "--check"])
    assert reference.main() == 1
    assert "gpushare.md" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["reference"])
    assert reference.main() == 0
    monkeypatch.setattr(sys, "argv", ["reference", "--check"])
    assert reference.main() == 0
    assert (tmp_path / "gpushare.md").read_text().endswith("\n\nAfter.\n")
    (tmp_path / "gpushare.md").write_text("# A\n")
    with pytest.raises(SystemExit, match="has no place for the reference of GPUShare"):
        reference.main()
