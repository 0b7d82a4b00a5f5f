"""Builds the CustomResourceDefinition of a kind from its `Kind` and its model."""

from typing import Any

from orion.crds.kinds import Column, Kind
from orion.crds.model import GROUP, VERSION
from orion.crds.schema import structural


def definition(kind: Kind) -> dict[str, Any]:
    """Return the CustomResourceDefinition, ready for the API server."""
    version: dict[str, Any] = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": [_column(column) for column in kind.columns],
    }
    if kind.selectable:
        version["selectableFields"] = [{"jsonPath": path} for path in kind.selectable]
    if kind.status:
        version["subresources"] = {"status": {}}
    version["schema"] = {"openAPIV3Schema": structural(kind.model)}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kind.full_name},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": kind.name,
                "listKind": f"{kind.name}List",
                "plural": kind.plural,
                "singular": kind.singular,
                "shortNames": list(kind.short),
                "categories": ["orion"],
            },
            "scope": kind.scope,
            "versions": [version],
        },
    }


def _column(column: Column) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "name": column.name,
        "type": column.type,
        "jsonPath": column.path,
        "description": column.description,
    }
    return plain | ({"priority": 1} if column.wide else {})
