"""Converts a pydantic model into the structural schema that the API server accepts.

Pydantic writes JSON Schema 2020: definitions with references, `anyOf` with null for optional fields, `const`, titles.
A structural schema has none of these: each value states its own type, and an optional field is just not in `required`.
(The API server drops a null unless the field is nullable.) The model must give each list and map a maximum length,
because the API server computes the cost of CEL rules from it and limits that cost.
"""

import copy
from typing import Any

from orion.crds.model import Model
from orion.crds.rules import FIELD, KEY

Schema = dict[str, Any]

_DROPPED = ("title", "$defs", "additionalProperties", "const", "prefixItems", "exclusiveMinimum", "exclusiveMaximum")
_FIRST = ("description", "type", "format", "enum", "default")
_INT_OR_STRING = "x-kubernetes-int-or-string"
_ROOT = {
    "apiVersion": "The version of the API that the object is written in: orion.gpu/v1alpha1.",
    "kind": "The kind of the object.",
}


def structural(model: type[Model]) -> Schema:
    """Return the schema of a whole object: `spec` and `status` from the model; the API server defines `metadata`."""
    plain = model.model_json_schema(by_alias=True, mode="validation")
    definitions = plain.get("$defs", {})
    parts = {
        name: _converted(part, definitions, name)
        for name, part in plain["properties"].items()
        if name not in (*_ROOT, "metadata")
    }
    head: Schema = {name: {"description": text, "type": "string"} for name, text in _ROOT.items()}
    schema: Schema = {
        "description": _sentence(plain["description"]),
        "type": "object",
        "properties": head | {"metadata": {"type": "object"}} | parts,
        "required": [name for name in plain.get("required", ()) if name != "metadata"],
    }
    if not schema["required"]:
        del schema["required"]
    if KEY in plain:
        schema[KEY] = plain[KEY]
    return schema


def _converted(node: Schema, definitions: Schema, path: str) -> Schema:
    """Return a node and all nodes below it in structural form.

    Args:
        node: in pydantic's form.
        definitions: the targets of references.
        path: the path of the value in an object, such as spec.maxSlowdown; ``[*]`` means the members of a list or map.
    """
    node = _resolved(copy.deepcopy(node), definitions)
    schema = {key: value for key, value in node.items() if key not in _DROPPED}
    if "description" in schema:
        schema["description"] = _sentence(schema["description"])
    if schema.get("default", 0) is None:
        del schema["default"]
    if "const" in node:
        schema["enum"] = [node["const"]]
    for word, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if word in node:
            schema |= {bound: node[word], word: True}
    if _INT_OR_STRING in node:
        del schema["anyOf"]  # _INT_OR_STRING implies anyOf; with both, the API server reports an error three times
    else:
        _convert_members(node, schema, definitions, path)
    for rule in schema.get(KEY, ()):
        rule["message"] = rule["message"].replace(FIELD, path)
    return {key: schema[key] for key in _FIRST if key in schema} | {
        key: value for key, value in schema.items() if key not in _FIRST
    }


def _convert_members(node: Schema, schema: Schema, definitions: Schema, path: str) -> None:
    """Convert the members of an object, a list or a map; add the format of integers and the list type."""
    if "properties" in node:
        schema["properties"] = {
            name: _converted(part, definitions, f"{path}.{name}") for name, part in node["properties"].items()
        }
    elif isinstance(node.get("additionalProperties"), dict):
        schema["additionalProperties"] = _converted(node["additionalProperties"], definitions, f"{path}[*]")
    if schema["type"] == "integer":
        schema.setdefault("format", "int64")
    if schema["type"] == "array":
        items = node["prefixItems"][0] if "prefixItems" in node else node["items"]
        schema["items"] = _converted(items, definitions, f"{path}[*]")
        schema.setdefault("x-kubernetes-list-type", "atomic")


def _resolved(node: Schema, definitions: Schema) -> Schema:
    """Return a node with its reference resolved and without the null of an optional field."""
    while True:
        if "$ref" in node:
            target = definitions[node["$ref"].rsplit("/", 1)[1]]
        elif "allOf" in node:
            (target,) = node["allOf"]
        elif "anyOf" in node and _INT_OR_STRING not in node:
            (target,) = [each for each in node["anyOf"] if each.get("type") != "null"]
        else:
            return node
        rest = {key: value for key, value in node.items() if key not in ("$ref", "allOf", "anyOf")}
        node = copy.deepcopy(target) | rest


def _sentence(text: str) -> str:
    return " ".join(text.split())
