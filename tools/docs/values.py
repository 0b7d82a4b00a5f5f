"""Checks keys of the chart's values on pages: each must exist in the schema and have the right type.

The schema is the chart's `values.schema.json`. Only its keywords for keys and types are checked here. Helm itself
checks complete files, in the tests of the chart.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

CHART = Path("charts/orion")
_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str, "boolean": bool, "integer": int, "number": (int, float), "object": dict, "array": list,
    "null": type(None),
}  # fmt: skip


def setting_faults(text: str, root: Path) -> list[str]:
    """Return the faults in the argument of `--set`, such as ``a.b=1,c[0]=x``."""
    found = []
    for part in re.split(r"(?<!\\),(?=[\w.\\/-]+(?:\[\d+\])?[\w.]*=)", text):
        path, equals, value = part.partition("=")
        if not equals:
            found.append(f"--set {part} gives no value")
            continue
        names = [name.replace("\\.", ".") for name in re.split(r"(?<!\\)\.", re.sub(r"\[(\d+)\]", r".\1", path))]
        given: Any = yaml.safe_load(value) if re.fullmatch(r"true|false|null|\d+|\[.*|\{.*", value) else value
        for name in reversed(names):
            given = [given] if name.isdigit() else {name: given}
        found += faults(given, root)
    return found


def faults(given: Any, root: Path) -> list[str]:
    """Return a sentence for each key of a values file, or of a part of one, that is unknown or has a wrong type."""
    schema = _schema(root)
    return [] if schema is None else list(_faults(given, schema, schema, ""))


@cache
def _schema(root: Path) -> dict[str, Any] | None:
    path = root / CHART / "values.schema.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def _faults(given: Any, schema: Mapping[str, Any], whole: Mapping[str, Any], path: str) -> Iterator[str]:
    schema = _resolved(schema, whole)
    words = schema.get("type")
    allowed = [words] if isinstance(words, str) else list(words or ())
    if allowed and not any(_is(given, word) for word in allowed):
        yield f"{path or 'values'} is {json.dumps(given)}, and the chart wants {' or '.join(allowed)}"
        return
    if "enum" in schema and given not in schema["enum"]:
        yield f"{path} is {json.dumps(given)}, and the chart wants one of {', '.join(map(json.dumps, schema['enum']))}"
    if "pattern" in schema and isinstance(given, str) and not re.search(schema["pattern"], given):
        yield f"{path} is {json.dumps(given)}, and the chart wants {schema['pattern']}"
    if isinstance(given, dict):
        for key, value in given.items():
            below = f"{path}.{key}".removeprefix(".")
            part = _member(schema, key)
            if part is False:
                yield f"the chart has no value {below}"
            elif isinstance(part, dict):
                yield from _faults(value, part, whole, below)
    if isinstance(given, list) and isinstance(schema.get("items"), dict):
        for number, value in enumerate(given):
            yield from _faults(value, schema["items"], whole, f"{path}[{number}]")


def _member(schema: Mapping[str, Any], key: str) -> Any:
    """Return the schema of a key; True: any value; False: the key does not exist."""
    if key in schema.get("properties", {}):
        return schema["properties"][key]
    for pattern, part in schema.get("patternProperties", {}).items():
        if re.search(pattern, key):
            return part
    return schema.get("additionalProperties", True)


def _resolved(schema: Mapping[str, Any], whole: Mapping[str, Any]) -> Mapping[str, Any]:
    while "$ref" in schema:
        node: Any = whole
        for name in schema["$ref"].removeprefix("#/").split("/"):
            node = node[name]
        schema = {**node, **{key: value for key, value in schema.items() if key != "$ref"}}
    return schema


def _is(value: Any, word: str) -> bool:
    if isinstance(value, bool):
        return word == "boolean"
    return isinstance(value, _TYPES[word])
