"""Checks a schema against the API server's rules and our additional ones; reports every place that breaks a rule."""

from collections.abc import Iterator
from typing import Any

TYPES = {"object", "array", "string", "integer", "number", "boolean"}
FORBIDDEN = {
    "$ref", "$schema", "$defs", "const", "definitions", "dependencies", "deprecated", "discriminator", "id", "oneOf",
    "allOf", "not", "patternProperties", "prefixItems", "readOnly", "title", "uniqueItems", "writeOnly", "xml",
}  # fmt: skip
MESSAGE_MAX = 2_048


def faults(schema: dict[str, Any]) -> list[str]:
    """Return one line for each error in a definition's schema."""
    return list(_faults(schema, ""))


def _faults(node: dict[str, Any], path: str) -> Iterator[str]:
    place = path.removeprefix(".") or "the object"
    for word in FORBIDDEN & node.keys():
        yield f"{place}: {word} is not structural"
    if node.get("x-kubernetes-int-or-string"):
        if "type" in node or "anyOf" in node:
            yield f"{place}: x-kubernetes-int-or-string excludes type and anyOf"
    elif "anyOf" in node:
        yield f"{place}: anyOf is not structural"
    elif node.get("type") not in TYPES:
        yield f"{place}: has no type"
    yield from _unbounded(node, place)
    yield from _incomplete(node, place)
    if "properties" in node and "additionalProperties" in node:
        yield f"{place}: properties and additionalProperties exclude each other"
    for name in node.get("required", ()):
        if name not in node["properties"]:
            yield f"{place}: requires {name}, which it does not have"
    for name, part in node.get("properties", {}).items():
        if path or name != "metadata":
            if "description" not in part:
                yield f"{place}.{name}: has no description"
            yield from _faults(part, f"{path}.{name}")
    for word in ("items", "additionalProperties"):
        if word in node:
            yield from _faults(node[word], f"{path}[*]")


def _unbounded(node: dict[str, Any], place: str) -> Iterator[str]:
    """Check the bounds from which the API server estimates the cost of rules, and which keep objects small."""
    kind = node.get("type")
    if kind == "string" and not {"maxLength", "enum", "format"} & node.keys() and place not in ("kind", "apiVersion"):
        yield f"{place}: a string without maxLength"
    if kind == "array":
        if "maxItems" not in node:
            yield f"{place}: a list without maxItems"
        if not isinstance(node.get("items"), dict):
            yield f"{place}: a list must have one schema of items"
    if kind == "object" and "additionalProperties" in node and "maxProperties" not in node:
        yield f"{place}: a map without maxProperties"
    if isinstance(node.get("additionalProperties"), bool):
        yield f"{place}: additionalProperties must be a schema"
    if kind == "integer" and "format" not in node:
        yield f"{place}: an integer without a format"


def _incomplete(node: dict[str, Any], place: str) -> Iterator[str]:
    """Check for defaults of null, lists without a list type, and rules without a message."""
    if "default" in node and node["default"] is None:
        yield f"{place}: its default is null"
    merging = node.get("x-kubernetes-list-type")
    if node.get("type") == "array" and merging not in ("atomic", "map", "set"):
        yield f"{place}: a list without x-kubernetes-list-type"
    if merging == "map":
        items = node["items"]
        for key in node.get("x-kubernetes-list-map-keys") or [""]:
            if key not in items["required"]:
                yield f"{place}: its key {key!r} is not required"
    for rule in node.get("x-kubernetes-validations", ()):
        message = rule.get("message", "")
        if not message or "{" in message or "\n" in message or len(message) > MESSAGE_MAX:
            yield f"{place}: a rule without a sentence: {rule}"
        named = place + rule.get("fieldPath", "")
        if named not in message and not message.startswith("metadata.name"):
            yield f"{place}: a rule whose sentence does not name {named}: {message}"
