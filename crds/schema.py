"""From a pydantic model to the structural schema that the API server takes.

pydantic writes JSON Schema of 2020: definitions with references, `anyOf` with null for what may be absent, `const`,
titles. A structural schema has none of these; in it every value has one type at its place, lists and maps are bounded,
and a field that may be absent is simply not required (the API server drops a null that nothing allows).
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
    """Return the schema of a whole object: `spec` and `status` as the model says, `metadata` left to the API server."""
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
    """Return one node, and all below it, in structural form.

    Args:
        node: as pydantic wrote it.
        definitions: what its references mean.
        path: of the value in an object, such as spec.maxSlowdown; a list's items are ``[*]``.
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
        del schema["anyOf"]  # the word alone says it, and the API server complains once instead of three times
    else:
        _convert_members(node, schema, definitions, path)
    for rule in schema.get(KEY, ()):
        rule["message"] = rule["message"].replace(FIELD, path)
    return {key: schema[key] for key in _FIRST if key in schema} | {
        key: value for key, value in schema.items() if key not in _FIRST
    }


def _convert_members(node: Schema, schema: Schema, definitions: Schema, path: str) -> None:
    """Convert what an object, a list or a map holds, and say of integers and lists what the API server wants said."""
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
    """Return a node without its reference, and without the null of what may be absent."""
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
