"""What the API server must know of admission: the webhook's configuration and the policies beside it.

Made here, so that names of annotations and resources have one source; written without any template's syntax into
charts/orion/files, and tests apply the same files. `python -m orion.operator.webhook.manifests` writes them, with
--check it says that they are out of date.

The webhook sees only pods that concern Orion (match conditions), so `failurePolicy: Fail` touches nobody else and no
namespace needs to be left out. One that is left out would be a way around the webhook.

The policies hold where the webhook does not look:
  * pods that ask for slots must have been through it, after every other webhook too: the hook is still first;
  * annotations `orion/...` of a pod stay as they were made. `orion.gpu/grant` may change, by whoever may *update
    grants* in the whole cluster: RBAC decides who that is, on a resource `grants.orion.gpu` that exists for this
    question alone. Asked without a namespace, so no Role of a namespace, however wide, allows it;
  * nor do its labels change, unless it names its share: a selector would give it to another share, with another grant;
  * neither can a Binding bring them, whose annotations the API server copies to the pod, and in later versions labels;
  * names that have no effect get a warning (names.py).

Refused: a policy with the GPUShares as its parameters, which would leave labels free that no share selects by. The API
server evaluates it for each share of the namespace at every write of a pod: with 200 shares, 0.1 s each time.

Refused: naming the reconciler's service account in the policy. The name depends on the installation, and a text that
must be edited before it is true is one that tests do not run.
"""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from orion.crds import device as device_kind
from orion.crds import share as share_kind
from orion.crds.annotations import GRANT, OF_PEOPLE, PREFIX, PRIORITY, SHARE, WRITTEN
from orion.crds.model import GROUP
from orion.operator.webhook.defaults import Defaults
from orion.operator.webhook.names import names_have_an_effect
from orion.operator.webhook.reviews import PATH

FILES = Path("charts/orion/files")
ROLE_FILE, WEBHOOK_FILE, POLICIES_FILE = "webhook-role.yaml", "webhook.yaml", "policies.yaml"
TIMEOUT_S = 5
GRANTS = "grants"
""" The resource that the policies ask RBAC about: who may update it may change orion.gpu/grant. """

_ANNOTATIONS = "object.metadata.?annotations.orValue({})"
_CONTAINERS = "(object.spec.containers + object.spec.?initContainers.orValue([]))"


def _asks(container: str) -> str:
    """Return the CEL expression that says whether a container asks for slots."""
    kinds = (f"{container}.?resources.?{kind}.orValue({{}})" for kind in ("requests", "limits"))
    return " || ".join(f"{kind}.exists(name, name.startsWith('{WRITTEN}'))" for kind in kinds)


ASKS_FOR_SLOTS = f"{_CONTAINERS}.exists(c, {_asks('c')})"
_IS_MARKED = (f"'{name}' in {_ANNOTATIONS}" for name in OF_PEOPLE)
CONCERNS_ORION = " || ".join((*_IS_MARKED, ASKS_FOR_SLOTS))


def webhook(
    client: Mapping[str, Any], name: str = "orion", namespaces: Mapping[str, Any] | None = None, policy: str = "Fail"
) -> dict[str, Any]:
    """Return the webhook's configuration.

    Args:
        client: how the API server reaches it: `service` or `url`, and `caBundle` once there is one.
        name: the object's name.
        namespaces: a selector; None: all namespaces.
        policy: what becomes of Orion's pods when the webhook cannot be asked: Fail or Ignore.
    """
    hook = {
        "name": f"pods.webhook.{GROUP}",
        "clientConfig": dict(client),
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": policy,
        "reinvocationPolicy": "IfNeeded",
        "matchPolicy": "Equivalent",
        "timeoutSeconds": TIMEOUT_S,
        "rules": [_rule(["CREATE"], ["pods"]), _rule(["UPDATE"], ["pods/ephemeralcontainers"])],
        "matchConditions": [{"name": "concerns-orion", "expression": CONCERNS_ORION}],
        **({"namespaceSelector": dict(namespaces)} if namespaces else {}),
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/name": "orion"}},
        "webhooks": [hook],
    }


def policies(hook: str, prefix: str = "orion", namespaces: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """Return the admission policies, each with its binding.

    Args:
        hook: the hook's path in a container.
        prefix: of the objects' names.
        namespaces: a selector; None: all namespaces.
    """
    made: list[dict[str, Any]] = []
    for spec in (_through_the_webhook(hook), _marks_stay(), _bindings_bring_no_marks(), names_have_an_effect()):
        name, action = f"{prefix}-{spec.pop('name')}", spec.pop("action", "Deny")
        labels = {"app.kubernetes.io/name": "orion"}
        made.append(_object("ValidatingAdmissionPolicy", name, labels, {"failurePolicy": "Fail", **spec}))
        binding: dict[str, Any] = {"policyName": name, "validationActions": [action]}
        if namespaces:
            binding["matchResources"] = {"namespaceSelector": dict(namespaces)}
        made.append(_object("ValidatingAdmissionPolicyBinding", name, labels, binding))
    return made


def role() -> dict[str, Any]:
    """Return all that the webhook's service account may do."""
    kinds = [share_kind.KIND.plural, device_kind.KIND.plural]
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "orion-webhook", "labels": {"app.kubernetes.io/name": "orion"}},
        "rules": [{"apiGroups": [GROUP], "resources": kinds, "verbs": ["list", "watch"]}],
    }


# -- Policies ----------------------------------------------------------------------------------------------------------


def _through_the_webhook(hook: str) -> dict[str, Any]:
    first = f"(v.?value.orValue('') == '{hook}' || v.?value.orValue('').startsWith('{hook}:'))"
    named = "c.?env.orValue([]).filter(v, v.name == 'LD_PRELOAD')"
    preloaded = f"{named}.size() > 0 && {named}.all(v, {first})"  # of two variables of one name the last one counts
    return {
        "name": "pods-have-been-admitted",
        "matchConstraints": {"resourceRules": [_rule(["CREATE"], ["pods"])]},
        "matchConditions": [
            {"name": "slots-or-grant", "expression": f"'{GRANT}' in {_ANNOTATIONS} || {ASKS_FOR_SLOTS}"}
        ],
        "variables": [{"name": "seated", "expression": f"{_CONTAINERS}.filter(c, {_asks('c')})"}],
        "validations": [
            {
                "expression": "variables.seated.size() > 0",
                "message": f"annotation {GRANT} is written by Orion's webhook only, for pods that ask for slots; "
                "remove it",
                "reason": "Forbidden",
            },
            {
                "expression": f"'{GRANT}' in {_ANNOTATIONS} && '{PRIORITY}' in {_ANNOTATIONS}",
                "message": f"this pod asks for slots ({WRITTEN}...) but has not been through Orion's webhook, "
                f"which writes {GRANT}; is the webhook running?",
                "reason": "Forbidden",
            },
            {
                "expression": f"variables.seated.all(c, {preloaded})",
                "message": f"a container that asks for slots does not preload Orion's hook first ({hook}); another "
                "webhook may have changed its LD_PRELOAD after Orion's",
                "reason": "Forbidden",
            },
        ],
    }


def _marks_stay() -> dict[str, Any]:
    """Return the policy that every write of every pod's status goes by.

    A pod may have some 40 000 annotations, whoever made it. So maps are read once, into variables (where they are read
    inside of a loop, an API server takes half a minute for it), and looped over only where they have changed.
    """
    read = {
        "annotations": _ANNOTATIONS,
        "oldAnnotations": "oldObject.metadata.?annotations.orValue({})",
        "labels": "object.metadata.?labels.orValue({})",
        "oldLabels": "oldObject.metadata.?labels.orValue({})",
    }

    def equal(new: str, old: str) -> str:
        both = f"variables.{new}", f"variables.{old}"
        same = f"(name in {both[0]}) && (name in {both[1]}) && {both[0]}[name] == {both[1]}[name]"
        marks = " && ".join(f"{each}.all(name, !name.startsWith('{PREFIX}') || ({same}))" for each in both)
        return f"({both[0]} == {both[1]} || ({marks}))"

    now, before = (f"variables.{each}[?'{GRANT}'].orValue('')" for each in ("annotations", "oldAnnotations"))
    was = "variables.oldAnnotations"
    may = f"authorizer.group('{GROUP}').resource('{GRANTS}').check('update').allowed()"
    resources = ["pods", "pods/status", "pods/ephemeralcontainers", "pods/resize"]
    return {
        "name": "pods-keep-their-marks",
        "matchConstraints": {"resourceRules": [_rule(["UPDATE"], resources)]},
        "variables": [{"name": name, "expression": expression} for name, expression in read.items()],
        "validations": [
            {
                "expression": f"{equal('annotations', 'oldAnnotations')} && {equal('labels', 'oldLabels')}",
                "message": f"annotations and labels {PREFIX}... of a pod cannot be changed once it exists; make "
                "the pod again",
                "reason": "Forbidden",
            },
            {
                "expression": f"{now} == {before} || {may}",
                "message": f"annotation {GRANT} is changed by Orion's operator only; change the GPUShare instead",
                "reason": "Forbidden",
            },
            {
                "expression": f"!('{GRANT}' in {was}) || '{SHARE}' in {was} "
                f"|| variables.labels == variables.oldLabels || {may}",
                "message": "labels of a pod that shares a GPU say which GPUShare governs it, so they stay as they were "
                f"made; make the pod again, and name its share in annotation {SHARE} to have its labels free",
                "reason": "Forbidden",
            },
        ],
    }


def _bindings_bring_no_marks() -> dict[str, Any]:
    both = f"{_ANNOTATIONS}, object.metadata.?labels.orValue({{}})"
    ours = f"name.startsWith('{PREFIX}') || name.startsWith('{WRITTEN}')"
    none = f"![{both}].exists(marks, marks.exists(name, {ours}))"
    return {
        "name": "bindings-bring-no-marks",
        "matchConstraints": {"resourceRules": [_rule(["CREATE"], ["bindings", "pods/binding"])]},
        "validations": [
            {
                "expression": none,
                "message": f"a Binding cannot give annotations or labels {PREFIX}... or {WRITTEN}... to a pod",
                "reason": "Forbidden",
            }
        ],
    }


def _rule(operations: list[str], resources: list[str]) -> dict[str, Any]:
    return {"apiGroups": [""], "apiVersions": ["v1"], "operations": operations, "resources": resources}


def _object(kind: str, name: str, labels: Mapping[str, str], spec: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name, "labels": dict(labels)},
        "spec": dict(spec),
    }


# -- Files -------------------------------------------------------------------------------------------------------------


def files() -> dict[str, str]:
    """Return the texts of the chart's files, by their names."""
    service = {"name": "orion-webhook", "namespace": "orion-system", "path": PATH, "port": 443}
    head = "# Made by `python -m orion.operator.webhook.manifests`, which says why it is as it is.\n"
    return {
        ROLE_FILE: head + _text([role()]),
        WEBHOOK_FILE: f"{head}# The chart puts its own service and caBundle into clientConfig.\n"
        + _text([webhook({"service": service})]),
        POLICIES_FILE: head + _text(policies(Defaults().hook)),
    }


def _text(objects: list[dict[str, Any]]) -> str:
    return yaml.safe_dump_all(objects, sort_keys=False, width=4_000)


def main() -> int:
    """Write the files, or with --check say that they are out of date."""
    parser = argparse.ArgumentParser(description="Write the chart's admission manifests.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where a file is out of date")
    check = parser.parse_args().check
    stale = False
    for name, text in files().items():
        path = FILES / name
        if path.exists() and path.read_text() == text:
            continue
        if check:
            print(f"{path} is out of date; run `python -m orion.operator.webhook.manifests`", file=sys.stderr)
            stale = True
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    print("admission manifests: " + ("out of date" if stale else "current"))
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
