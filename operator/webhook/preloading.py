"""Puts the hook first in a container's LD_PRELOAD, before the libraries that the container preloads itself.

The dynamic linker uses the first library that defines a symbol. If a library before the hook also interposed `dlsym` or
driver functions, programs would call that library, and the hook would miss launches. A library after the hook still
reaches the driver, through the hook. The container's own value is kept, including `$(VAR)`: the kubelet expands it.

LD_AUDIT, or another value of ORION_ROOT, would let a container bypass the hook. If the container's envFrom could set
one of these variables, the webhook adds the variable to `env` with a harmless value. A variable in `env` overrides one
from envFrom. The webhook cannot see variables that the image sets; a variable in the pod overrides them.
"""

import re
from collections.abc import MutableMapping
from typing import Any

from orion.operator.webhook.decisions import Reason, Refusal
from orion.operator.webhook.defaults import Defaults
from orion.operator.webhook.pods import Container, PodContainer

PRELOAD = "LD_PRELOAD"
_LONGEST = 4096
""" The most characters of a container's own LD_PRELOAD: the webhook splits it, and its answer contains it twice. """
_SEPARATORS = re.compile(r"[ :]+")


def pins(defaults: Defaults) -> dict[str, str]:
    """Return the variables with which a container could bypass the hook, each with a harmless value."""
    return {"LD_AUDIT": "", "ORION_ROOT": defaults.root}


def preload(entry: PodContainer, container: MutableMapping[str, Any], defaults: Defaults) -> list[str]:
    """Put the hook first in a container's LD_PRELOAD.

    Args:
        entry: the container.
        container: the same container as parsed JSON; changed in place.
        defaults: give the hook's path.

    Returns:
        A phrase for each change; empty: nothing had to change.

    Raises:
        Refusal: LD_PRELOAD is a reference (valueFrom), or is set twice.
    """
    before = _own(entry)
    merged = _merge(before or "", defaults.hook)
    reported = []
    if before != merged:
        _set(container, PRELOAD, merged)
        kept = f", before its own {before}" if before else ""
        reported.append(f"preloads the hook {defaults.hook}{kept}")
    for name, value in pins(defaults).items():
        if may_bring(entry.container, name) and not any(each.name == name for each in entry.container.env or ()):
            _set(container, name, value)
            reported.append(f"has {name}={value!r}, so that envFrom cannot set another value")
    return reported


def may_bring(container: Container, name: str) -> bool:
    """Return whether a ConfigMap or Secret of the container's envFrom could set a variable of this name."""
    return any(name.startswith(source.prefix or "") for source in container.env_from or ())


def _own(entry: PodContainer) -> str | None:
    found = [variable for variable in entry.container.env or () if variable.name == PRELOAD]
    if len(found) > 1:
        raise Refusal(Reason.HOOK_ENVIRONMENT, f"{entry} sets {PRELOAD} twice in its env; keep one of them")
    if not found:
        return None
    if found[0].literal is None:
        raise Refusal(
            Reason.HOOK_ENVIRONMENT,
            f"{entry} takes {PRELOAD} from a reference (valueFrom), so the hook cannot be put before it; write the "
            "value into the pod",
        )
    if len(found[0].literal) > _LONGEST:
        raise Refusal(
            Reason.HOOK_ENVIRONMENT,
            f"{entry} sets {PRELOAD} to {len(found[0].literal)} characters, and {_LONGEST} are allowed; shorten it",
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
