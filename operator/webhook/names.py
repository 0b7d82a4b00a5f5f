"""The admission policy that warns of annotations and labels that have no effect.

If an annotation is misspelt or is on the wrong object, Orion ignores it: the pod starts unmanaged, without an error.
The policy's warning names the annotation, and the annotations that Orion reads. The policy never rejects an object,
because an unknown annotation does no harm.

The policy checks pods and all built-in kinds that create pods. Warnings about pods alone would reach no person: a
ReplicaSet's controller drops them.
"""

from typing import Any

from orion.crds.annotations import CONTAINERS, OF_PEOPLE, PINNED_SHARE, PREFIX, PRIORITY, PRIORITY_LABEL, SHARE, WRITTEN
from orion.crds.claims import SHAPE
from orion.crds.policy import Priority

ALLOWED = (
    f"a pod may have the annotations {PRIORITY} ({' or '.join(Priority)}), {SHARE} (the name of a GPUShare) and "
    f"{CONTAINERS} (names separated by commas)"
)
_MAKES = "request.kind.kind"
_KNOWN = "[" + ", ".join(f"'{name}'" for name in OF_PEOPLE) + "]"
_PRIORITIES = "[" + ", ".join(f"'{priority}'" for priority in Priority) + "]"
MOST_NAMES = 1000
""" Names of a larger map are not looked at. The API server takes seconds to walk through a map of 40,000 names, and the
time grows with the square of their number. """
_TEMPLATE = (  # dyn: one expression serves kinds that hold the pod template at different paths
    f"{_MAKES} == 'Pod' ? dyn(object) : {_MAKES} == 'CronJob' ? dyn(object).spec.jobTemplate.spec.template "
    ": dyn(object).spec.template"
)
_PLACE = (
    f"{_MAKES} == 'Pod' ? 'metadata.annotations' : {_MAKES} == 'CronJob' "
    "? 'spec.jobTemplate.spec.template.metadata.annotations' : 'spec.template.metadata.annotations'"
)
_AROUND = (  # metadata outside the pod template, which users mistake for the pod's metadata
    f"{_MAKES} == 'Pod' ? [] : {_MAKES} == 'CronJob' "
    "? [dyn(object).metadata, dyn(object).spec.jobTemplate.?metadata.orValue({})] : [dyn(object).metadata]"
)


def _ours(names: str) -> str:
    """Return a CEL expression for the list of Orion's names in a map."""
    ours = f"name.startsWith('{PREFIX}') || name.startsWith('{WRITTEN}')"
    return f"({names}.size() > {MOST_NAMES} ? [] : {names}.filter(name, {ours}))"


def names_have_an_effect() -> dict[str, Any]:
    """Return the policy, without its kind and its binding."""
    read = {
        "template": _TEMPLATE,
        "place": _PLACE,
        "annotations": "variables.template.?metadata.?annotations.orValue({})",
        "labels": "variables.template.?metadata.?labels.orValue({})",
        "around": _AROUND,
        "ours": _ours("variables.annotations"),
        "unknown": f"variables.ours.filter(name, name.startsWith('{PREFIX}') && !(name in {_KNOWN}))",
        "written": f"variables.ours.filter(name, name.startsWith('{WRITTEN}') "
        f"&& !({_MAKES} == 'Pod' && name in ['{PINNED_SHARE}', '{SHAPE}']))",
        "asLabels": f"{_ours('variables.labels')}.filter(name, !(name == '{PRIORITY_LABEL}' "
        f"&& {_MAKES} == 'Pod' && '{PINNED_SHARE}' in variables.annotations))",
        "outside": "variables.around.exists(each, [each.?annotations.orValue({}), each.?labels.orValue({})]"
        f".exists(names, {_ours('names')}.size() > 0))",
        "priority": f"variables.annotations[?'{PRIORITY}'].orValue('{Priority.HP}')",
    }
    return {
        "name": "names-have-an-effect",
        "action": "Warn",
        "failurePolicy": "Ignore",  # an error in this policy must not reject pods
        "matchConstraints": {"resourceRules": _rules()},
        "variables": [{"name": name, "expression": expression} for name, expression in read.items()],
        "validations": [
            _warning(
                "variables.unknown.size() == 0",
                f"'Orion does not know the annotation ' + variables.unknown.join(', ') + ': {ALLOWED}; "
                "all other settings, such as memory, are fields of a GPUShare'",
            ),
            _warning(
                "variables.written.size() == 0",
                f"'annotation ' + variables.written.join(', ') + ' has no effect: Orion alone writes {WRITTEN}...; "
                f"{ALLOWED}'",
            ),
            _warning(
                "variables.asLabels.size() == 0",
                "'label ' + variables.asLabels.join(', ') + ' has no effect: Orion reads annotations; move it to ' "
                f"+ variables.place + '; {ALLOWED}'",
            ),
            _warning(
                "!variables.outside",
                f"'annotations and labels {PREFIX}... of the ' + {_MAKES} + ' itself have no effect: Orion reads those "
                "of its pods; move them to ' + variables.place",
            ),
            _warning(
                f"variables.priority in {_PRIORITIES}",
                f"'annotation {PRIORITY} must be {' or '.join(Priority)}, not ' + string(variables.priority) + "
                "': the pods will be refused'",
            ),
        ],
    }


def _warning(holds: str, sentence: str) -> dict[str, Any]:
    """Return a validation. The API server uses `message` if it cannot evaluate the sentence."""
    return {
        "expression": holds,
        "message": f"an annotation or label of Orion has no effect here: {ALLOWED}",
        "messageExpression": sentence,
    }


def _rules() -> list[dict[str, Any]]:
    """Return the rules of the checked kinds. Orion's annotations of a pod cannot change, so pods are checked once."""
    made, written = ["CREATE"], ["CREATE", "UPDATE"]
    return [
        {"apiGroups": [""], "apiVersions": ["v1"], "operations": made, "resources": ["pods"]},
        {
            "apiGroups": ["apps"],
            "apiVersions": ["v1"],
            "operations": written,
            "resources": ["deployments", "statefulsets", "daemonsets", "replicasets"],
        },
        {"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": written, "resources": ["jobs", "cronjobs"]},
    ]
