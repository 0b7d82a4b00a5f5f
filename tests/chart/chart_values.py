"""The values of the chart and their schema as data; makes copies of values in which one value is changed."""

import copy
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from testbed import helm

VALUES = Path(helm.CHART, "values.yaml").read_text()
DEFAULTS: dict[str, Any] = yaml.safe_load(VALUES)
SCHEMA: dict[str, Any] = yaml.safe_load(Path(helm.CHART, "values.schema.json").read_text())
FREE_MAPS = ("nodeSelector", "resources", "securityContext", "labels")  # each of these maps counts as one value
MPS, DRA = {"mps": {"enabled": True}}, {"allocation": "dra"}


def leaves(values: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value with its path."""
    for key, value in values.items():
        if isinstance(value, Mapping) and value and key not in FREE_MAPS:
            yield from leaves(value, f"{path}{key}.")
        else:
            yield path + key, value


LEAVES = dict(leaves(DEFAULTS))


def set_at(values: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return a copy of values in which one value is changed."""
    changed = copy.deepcopy(values)
    *above, last = path.split(".")
    place = changed
    for key in above:
        place = place.setdefault(key, {})
    place[last] = value
    return changed
