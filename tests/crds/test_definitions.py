"""The generated definitions are structural, bounded, described and current, and have the right names and columns."""

import sys
from collections.abc import Iterator
from typing import Annotated, Any

import pytest
import yaml
from pydantic import Field

from orion.crds import generate
from orion.crds.generate import definition
from orion.crds.kinds import Kind
from orion.crds.metadata import Metadata
from orion.crds.model import Model
from orion.crds.schema import structural
from tests.crds.structural import faults


def schema_of(kind: Kind) -> dict[str, Any]:
    schema: dict[str, Any] = definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def places(node: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path.removeprefix("."), node
    for name, part in node.get("properties", {}).items():
        yield from places(part, f"{path}.{name}")
    for word in ("items", "additionalProperties"):
        if word in node:
            yield from places(node[word], f"{path}[*]")


@pytest.mark.parametrize("kind", generate.KINDS, ids=lambda kind: kind.name)
def test_a_definition_is_structural_bounded_and_described(kind: Kind) -> None:
    assert faults(schema_of(kind)) == []


@pytest.mark.parametrize("kind", generate.KINDS, ids=lambda kind: kind.name)
def test_a_definition_has_the_fields_that_the_api_server_requires(kind: Kind) -> None:
    made = definition(kind)
    assert made["metadata"]["name"] == f"{kind.plural}.orion.gpu"
    assert kind.plural == f"{kind.singular}s" == f"{kind.name.lower()}s"
    (version,) = made["spec"]["versions"]
    assert (version["name"], version["served"], version["storage"]) == ("v1alpha1", True, True)
    assert ("subresources" in version) == ("status" in schema_of(kind)["properties"])


@pytest.mark.parametrize("kind", generate.KINDS, ids=lambda kind: kind.name)
def test_columns_show_fields_that_exist(kind: Kind) -> None:
    fields = {path.replace("[*]", "") for path, _ in places(schema_of(kind))}
    for column in kind.columns:
        path = column.path.removeprefix(".").replace("[0]", "")
        if not path.startswith("metadata"):
            head, _, tail = path.partition("[?(@.")
            path = head + tail[tail.index(")]") + 2 :] if tail else head
            assert path in fields, column
    assert kind.columns[-1].name == "Age"


def test_short_names_and_names_are_unique() -> None:
    names = [name for kind in generate.KINDS for name in (kind.plural, kind.singular, *kind.short)]
    assert len(names) == len(set(names))


def test_conditions_have_the_fields_of_kubernetes() -> None:
    for kind in generate.KINDS:
        for path, node in places(schema_of(kind)):
            if path.endswith("conditions"):
                assert node["x-kubernetes-list-type"] == "map"
                assert node["x-kubernetes-list-map-keys"] == ["type"]
                assert set(node["items"]["properties"]) == {
                    "type", "status", "observedGeneration", "lastTransitionTime", "reason", "message",
                }  # fmt: skip
                assert node["items"]["properties"]["lastTransitionTime"]["format"] == "date-time"


def test_descriptions_name_the_default_of_optional_fields_and_the_unit_of_amounts() -> None:
    for kind in generate.KINDS[:2]:
        for path, node in places(schema_of(kind)["properties"]["spec"]):
            for name, part in node.get("properties", {}).items():
                if path.startswith("selector"):
                    continue
                text = part["description"]
                assert ("Required" in text) == (name in node.get("required", ())), f"{path}.{name}"
                assert "Default:" in text or "Required" in text, f"{path}.{name}"
                if part.get("x-kubernetes-int-or-string") or name.endswith("SMs"):
                    assert "Unit:" in text or "percent" in text, f"{path}.{name}"


def test_outdated_files_are_reported_and_written_again(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate, "FOLDER", tmp_path)
    monkeypatch.setattr(sys, "argv", ["generate"])
    assert generate.main() == 0
    (tmp_path / "gpushares.yaml").write_text("kind: Other\n")
    (tmp_path / "gpuolds.yaml").write_text("kind: Old\n")
    monkeypatch.setattr(sys, "argv", ["generate", "--check"])
    assert generate.main() == 1
    monkeypatch.setattr(sys, "argv", ["generate"])
    assert generate.main() == 0
    assert {path.name for path in tmp_path.iterdir()} == set(generate.files())
    assert yaml.safe_load((tmp_path / "gpushares.yaml").read_text())["metadata"]["name"] == "gpushares.orion.gpu"


class _Part(Model):
    """A part."""

    exact: Annotated[float, Field(gt=0, lt=1)]
    """ Between. """
    shape: tuple[int, int] | None = None
    """ Two. """


class _Odd(Model):
    """A model with the unusual types of fields."""

    metadata: Metadata
    parts: dict[str, _Part]
    """ Several
    lines. """


def test_a_pydantic_schema_becomes_structural() -> None:
    part = structural(_Odd)["properties"]["parts"]
    assert part["description"] == "Several lines."
    assert part["additionalProperties"]["properties"]["exact"] == {
        "description": "Between.", "type": "number", "minimum": 0, "exclusiveMinimum": True,
        "maximum": 1, "exclusiveMaximum": True,
    }  # fmt: skip
    shape = part["additionalProperties"]["properties"]["shape"]
    assert (shape["minItems"], shape["maxItems"], shape["items"]["type"]) == (2, 2, "integer")
    assert part["additionalProperties"]["required"] == ["exact"]


def test_the_checker_finds_faults() -> None:
    bad = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"anyOf": []}, "c": {"type": "array"}}}
    found = "\n".join(faults(bad))
    for word in ("a: has no description", "a: a string without maxLength", "b: anyOf", "c: a list without maxItems"):
        assert word in found
