"""What a pod's containers ask for by resources, and which of them have a liveness probe: from the pod's parsed JSON."""

import sys
from collections.abc import Iterator, Mapping, Set
from typing import Any


def lasting_containers(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the init containers, sidecars and app containers of a pod; ephemeral ones have no slots."""
    yield from spec.get("initContainers") or ()
    yield from spec.get("containers") or ()


def asked_slots(spec: Mapping[str, Any], resource: str) -> Iterator[tuple[str, int]]:
    """Yield the containers that ask for a resource, each with its amount."""
    for container in lasting_containers(spec):
        resources = container.get("resources") or {}
        asked = (resources.get("limits") or {}).get(resource) or (resources.get("requests") or {}).get(resource)
        if asked is not None and str(asked).isdigit() and int(asked) > 0:
            yield sys.intern(container["name"]), int(asked)


def is_probed(spec: Mapping[str, Any], names: Set[str]) -> bool:
    """Return whether one of the named containers has a liveness probe."""
    return bool(names) and any(each.get("livenessProbe") and each["name"] in names for each in lasting_containers(spec))
