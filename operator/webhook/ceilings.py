"""The admission policies that keep GPUShares and pods under the ceilings of their namespace.

Administrators write a ceiling as an annotation of the Namespace, which Kubernetes' roles `edit` and `admin` in a
namespace cannot change. The API server gives the Namespace to the policies (`namespaceObject`), so no component of
Orion reads Namespaces.

A ceiling applies when a share or a pod is written. A share that was above it before keeps its values, and other fields
of the share can change: a value is refused if it is above the ceiling and above the old value. If an annotation cannot
be read, the policies refuse what it would limit, and the sentence names the annotation.

Rejected: an own kind for ceilings. The policies would have to read its objects as parameters, and a namespace without
such an object would need a rule. A Namespace always exists, and the right to write it exists already.
"""

import json
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

from orion.crds import share as share_kind
from orion.crds.annotations import PINNED_SHARE, PREFIX, PRIORITY, RESOURCES, SHARE
from orion.crds.model import GROUP
from orion.crds.policy import Priority
from orion.operator.webhook.ceiling_fields import CEILINGS, OF_PRIORITY, Ceiling, shown

_NAMESPACE = "namespaceObject.metadata.name"
_WRITERS = "somebody who may write Namespaces"


def policies(defaults: Mapping[str, str] = MappingProxyType({})) -> list[dict[str, Any]]:
    """Return the policies, without their kinds and their bindings.

    Args:
        defaults: the ceilings of Namespaces that have no such annotation. The chart sets them.
    """
    return [_shares(defaults), _pods(defaults), _namespaces()]


def _ceilings(defaults: Mapping[str, str], of: Collection[Ceiling]) -> list[dict[str, str]]:
    """Return the variables of ceilings, and those that they use."""
    found = (f"variables.annotations[?'{each.name}'].or(variables.defaults[?'{each.name}'])" for each in of)
    return [
        {"name": "annotations", "expression": "namespaceObject.metadata.?annotations.orValue({})"},
        {"name": "defaults", "expression": json.dumps(dict(defaults), separators=(",", ":"))},
        *({"name": each.variable, "expression": text} for each, text in zip(of, found, strict=True)),
    ]


# -- Shares ------------------------------------------------------------------------------------------------------------


def _shares(defaults: Mapping[str, str]) -> dict[str, Any]:
    return {
        "name": "shares-keep-to-ceilings",
        "matchConstraints": {"resourceRules": [_rule(GROUP, "*", ["CREATE", "UPDATE"], share_kind.KIND.plural)]},
        "variables": _ceilings(defaults, CEILINGS),
        "validations": [_share_has_at_most(each) for each in CEILINGS],
    }


def _share_has_at_most(ceiling: Ceiling) -> dict[str, str]:
    new, old, field = ceiling.of_share("object"), ceiling.of_share("oldObject"), f"spec.{ceiling.field}"
    valid = ceiling.is_valid(ceiling.value)
    others = f"object.spec.priority != '{ceiling.of}' || " if ceiling.of else ""
    what = f"(object.spec{ceiling.path}.hasValue() ? '{field} is ' + string({new}) : '{field} is not set')"
    return _validation(
        f"{ceiling.is_absent} || {others}(oldObject != null && {ceiling.at_most(new, old)}) "
        f"|| ({valid} && {ceiling.at_most(new, ceiling.value)})",
        f"({valid}) ? {what} + {_above(ceiling)} + ': set it to ' + {ceiling.shown} + ' or less, or ask {_WRITERS} to "
        f"set the annotation higher' : {_unreadable(ceiling, f'spec.{ceiling.field} cannot be set or raised')}",
    )


def _above(ceiling: Ceiling) -> str:
    return (
        f"', above the ceiling ' + {ceiling.shown} + ' of Namespace ' + {_NAMESPACE} + ' (annotation {ceiling.name})'"
    )


def _unreadable(ceiling: Ceiling, then: str) -> str:
    return (
        f"'annotation {ceiling.name} of Namespace ' + {_NAMESPACE} + ' {ceiling.must}, not ' + {ceiling.shown} + '; "
        f"until {_WRITERS} corrects it, {then}'"
    )


# -- Pods --------------------------------------------------------------------------------------------------------------


def _pods(defaults: Mapping[str, str]) -> dict[str, Any]:
    annotations = "object.metadata.?annotations.orValue({})"
    containers = "(object.spec.containers + object.spec.?initContainers.orValue([]))"
    # The webhook has added the annotation to each pod with slots. The resource counts too, in case it was away.
    asks = f"{containers}.exists(c, '{RESOURCES[Priority.HP]}' in c.?resources.?limits.orValue({{}}))"
    is_hp = f"{annotations}[?'{PRIORITY}'].orValue('') == '{Priority.HP}' || {asks}"
    governed = f"{annotations}[?'{PINNED_SHARE}'].orValue('') != ''"
    needing = [each for each in CEILINGS if each.needs_share]
    return {
        "name": "pods-keep-to-ceilings",
        "matchConstraints": {"resourceRules": [_rule("", "v1", ["CREATE"], "pods")]},
        "matchConditions": [{"name": "shares-gpus", "expression": f"'{PRIORITY}' in {annotations} || {asks}"}],
        "variables": [
            *_ceilings(defaults, (OF_PRIORITY, *needing)),
            {"name": "isHp", "expression": is_hp},
            {"name": "isGoverned", "expression": governed},
        ],
        "validations": [
            _pod_has_priority(OF_PRIORITY),
            *(_pod_has_share(each) for each in needing),
        ],
    }


def _pod_has_priority(ceiling: Ceiling) -> dict[str, str]:
    return _validation(
        f"{ceiling.is_absent} || !variables.isHp || {ceiling.value} == '{Priority.HP}'",
        f"({ceiling.is_valid(ceiling.value)}) ? 'the priority of this pod is {Priority.HP}' + {_above(ceiling)} + "
        f"': set its annotation {PRIORITY} to {Priority.BE}, or ask {_WRITERS} to set the ceiling to {Priority.HP}' : "
        f"{_unreadable(ceiling, f'no new pod can be {Priority.HP}')}",
    )


def _pod_has_share(ceiling: Ceiling) -> dict[str, str]:
    return _validation(
        f"{ceiling.is_absent} || variables.isGoverned",
        f"'no GPUShare governs this pod, so it has no {ceiling.field}' + {_above(ceiling)} + ': create a GPUShare with "
        f"spec.{ceiling.field} that selects the pod, or name one in annotation {SHARE}'",
    )


# -- Namespaces --------------------------------------------------------------------------------------------------------


def _namespaces() -> dict[str, Any]:
    """Return the policy that refuses annotations which cannot be read, where they are written.

    It checks only annotations that change: another change of a Namespace never depends on an old annotation.
    """
    names = [each.name for each in CEILINGS]
    own = "object.metadata.?annotations.orValue({})"
    unknown = (
        f"variables.annotations.filter(name, name.startsWith('{PREFIX}') && !(name in {names}) "
        "&& !(name in variables.before))"
    )
    return {
        "name": "ceilings-can-be-read",
        "matchConstraints": {"resourceRules": [_rule("", "v1", ["CREATE", "UPDATE"], "namespaces")]},
        "matchConditions": [{"name": "has-ceilings", "expression": f"{own}.exists(name, name.startsWith('{PREFIX}'))"}],
        "variables": [
            {"name": "annotations", "expression": own},
            {"name": "before", "expression": "oldObject == null ? {} : oldObject.metadata.?annotations.orValue({})"},
            *({"name": each.variable, "expression": f"variables.annotations[?'{each.name}']"} for each in CEILINGS),
            {"name": "unknown", "expression": unknown},
        ],
        "validations": [
            *(_can_be_read(each) for each in CEILINGS),
            _validation(
                "variables.unknown.size() == 0",
                f"'a Namespace cannot have the annotation ' + {shown('variables.unknown[0]')} + ': the ceilings of "
                f"Orion are {', '.join(names)}; correct its name or remove it'",
            ),
        ],
    }


def _can_be_read(ceiling: Ceiling) -> dict[str, str]:
    return _validation(
        f"{ceiling.is_absent} || variables.before[?'{ceiling.name}'].orValue('') == {ceiling.value} "
        f"|| ({ceiling.is_valid(ceiling.value)})",
        f"'annotation {ceiling.name} {ceiling.must}, not ' + {ceiling.shown} + '; correct or remove it'",
    )


def _validation(expression: str, sentence: str) -> dict[str, str]:
    """Return a validation. The API server uses `message` if it cannot evaluate the sentence."""
    return {
        "expression": expression,
        "message": f"this is above a ceiling of the Namespace (annotations {PREFIX}max-...)",
        "messageExpression": sentence,
        "reason": "Forbidden",
    }


def _rule(group: str, version: str, operations: list[str], resource: str) -> dict[str, Any]:
    return {"apiGroups": [group], "apiVersions": [version], "operations": operations, "resources": [resource]}
