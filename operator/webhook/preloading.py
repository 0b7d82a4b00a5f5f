"""The hook's place in a container's LD_PRELOAD: first, before whatever its owner preloads.

First, because the first library that has a symbol wins: one before the hook that also interposes `dlsym` or the driver
would hand programs its own functions, and the hook would see some of the launches only. Behind the hook it still finds
the driver, through the hook. An owner's text is kept as it is, `$(VAR)` included: the kubelet expands it behind ours.

What envFrom brings is replaced by a variable of the same name in `env`. So a container with envFrom also gets the two
variables that could lead around the hook, at the values that they have when absent. A variable that the image itself
sets cannot be seen from here; one of the pod's replaces it.
"""

import re
from collections.abc import MutableMapping
from typing import Any

from orion.operator.webhook.decisions import Reason, Refusal
from orion.operator.webhook.defaults import Defaults
from orion.operator.webhook.pods import Container, Place

PRELOAD = "LD_PRELOAD"
_SEPARATORS = re.compile(r"[ :]+")


def pins(defaults: Defaults) -> dict[str, str]:
    """Return variables that could lead around the hook, each with the value that is as good as none."""
    return {"LD_AUDIT": "", "ORION_ROOT": defaults.root}


def preload(place: Place, container: MutableMapping[str, Any], defaults: Defaults) -> list[str]:
    """Put the hook first in a container's LD_PRELOAD.

    Args:
        place: the container, as it was read.
        container: the same, plain; changed in place.
        defaults: where the hook is.

    Returns:
        What changed, for people; empty where it was so already.

    Raises:
        Refusal: LD_PRELOAD is somewhere else, or there twice.
    """
    before = _own(place)
    merged = _merge(before or "", defaults.hook)
    reported = []
    if before != merged:
        _set(container, PRELOAD, merged)
        kept = f", before its own {before}" if before else ""
        reported.append(f"preloads the hook {defaults.hook}{kept}")
    for name, value in pins(defaults).items():
        if may_bring(place.container, name) and not any(each.name == name for each in place.container.env or ()):
            _set(container, name, value)
            reported.append(f"has {name}={value!r}, so that envFrom cannot bring another")
    return reported


def may_bring(container: Container, name: str) -> bool:
    """Return whether a ConfigMap or Secret of the container's envFrom could set a variable of this name."""
    return any(name.startswith(source.prefix or "") for source in container.env_from or ())


def _own(place: Place) -> str | None:
    found = [variable for variable in place.container.env or () if variable.name == PRELOAD]
    if len(found) > 1:
        raise Refusal(Reason.HOOK_ENVIRONMENT, f"{place} sets {PRELOAD} twice in its env; keep one of them")
    if not found:
        return None
    if found[0].literal is None:
        raise Refusal(
            Reason.HOOK_ENVIRONMENT,
            f"{place} takes {PRELOAD} from somewhere else (valueFrom), so the hook cannot be put before it; write its "
            "value into the pod",
        )
    return found[0].literal


def _merge(text: str, hook: str) -> str:
    others = [path for path in _SEPARATORS.split(text) if path and path != hook]
    return ":".join([hook, *others])


def _set(container: MutableMapping[str, Any], name: str, value: str) -> None:
    variables = container["env"] = list(container.get("env") or ())
    for index, variable in enumerate(variables):
        if variable["name"] == name:
            variables[index] = {**variable, "value": value}
            return
    variables.append({"name": name, "value": value})
