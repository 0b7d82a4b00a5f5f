"""Generates the webhook's configuration, its ClusterRole and the admission policies.

The manifests are generated, so that the names of annotations and resources have one source. The files in
charts/orion/files contain no template syntax, and tests apply the same files. The command
`python -m orion.operator.webhook.manifests` writes the files; with --check, it reports whether they are out of date.

The webhook receives only pods that concern Orion (match conditions). So `failurePolicy: Fail` affects no other pods,
and no namespace has to be excluded. Pods of an excluded namespace would bypass the webhook.

The policies check what the webhook does not check:
  * A pod that asks for slots must have passed the webhook. No later webhook may have put a library before the hook.
  * Annotations and labels `orion/...` and `orion.gpu/...` of an existing pod cannot change, whoever asks. The webhook
    has pinned the pod's share in one of them, so other labels of a pod can change without an effect on its grant.
  * A Binding may not contain Orion's annotations or labels: the API server copies a Binding's annotations to the pod,
    and in later versions also its labels.
  * A user who applies an Orion annotation or label that has no effect gets a warning (names.py).

Rejected: pinning no share, and forbidding changes of labels instead, since labels decide which selector matches. Kueue
and others label the pods that they admit.
"""

import argparse
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from orion.crds import device as device_kind
from orion.crds import share as share_kind
from orion.crds.annotations import OF_PEOPLE, PINNED_SHARE, PREFIX, PRIORITY, WRITTEN
from orion.crds.claims import BY_CLASS, CLAIM, TEMPLATE_NAMES
from orion.crds.model import GROUP
from orion.operator.webhook import ceilings
from orion.operator.webhook.defaults import Defaults
from orion.operator.webhook.names import names_have_an_effect
from orion.operator.webhook.reviews import PATH

FILES = Path("charts/orion/files")
ROLE_FILE, WEBHOOK_FILE, POLICIES_FILE = "webhook-role.yaml", "webhook.yaml", "policies.yaml"
CEILINGS_FILE = "ceilings.yaml"
TIMEOUT_S = 5

_ANNOTATIONS = "object.metadata.?annotations.orValue({})"
_LABELS = "object.metadata.?labels.orValue({})"
_IS_OURS = f"(name.startsWith('{PREFIX}') || name.startsWith('{WRITTEN}'))"
_CLAIMS = "object.spec.?resourceClaims.orValue([])"
_OF_OPERATOR = f"c.?resourceClaimTemplateName.orValue('').matches('{TEMPLATE_NAMES}')"
_CONTAINERS = "(object.spec.containers + object.spec.?initContainers.orValue([]))"


def _asks(container: str) -> str:
    """Return a CEL expression that is true if a container asks for slots, as resources or by the claim of its pod."""
    kinds = (f"{container}.?resources.?{kind}.orValue({{}})" for kind in ("requests", "limits"))
    resources = (f"{kind}.exists(name, name.startsWith('{WRITTEN}') || name in {list(BY_CLASS)})" for kind in kinds)
    claim = f"{container}.?resources.?claims.orValue([]).exists(claim, claim.name == '{CLAIM}')"
    return " || ".join((*resources, claim))


ASKS_FOR_SLOTS = f"{_CONTAINERS}.exists(c, {_asks('c')})"
_IS_MARKED = (f"'{name}' in {_ANNOTATIONS}" for name in OF_PEOPLE)
CONCERNS_ORION = " || ".join((*_IS_MARKED, ASKS_FOR_SLOTS))


def webhook(
    client: Mapping[str, Any], name: str = "orion", namespaces: Mapping[str, Any] | None = None, policy: str = "Fail"
) -> dict[str, Any]:
    """Return the webhook's configuration.

    Args:
        client: the clientConfig: `service` or `url`, and optionally `caBundle`.
        name: the object's name.
        namespaces: a namespace selector; None: all namespaces.
        policy: what happens to Orion's pods when the webhook does not answer: Fail or Ignore.
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
    """Return the admission policies about pods that share GPUs, each with its binding.

    Args:
        hook: the hook's path in a container.
        prefix: the prefix of the objects' names.
        namespaces: a namespace selector; None: all namespaces.
    """
    specs = (_through_the_webhook(hook), _marks_stay(), _bindings_bring_no_marks(), names_have_an_effect())
    return bound(specs, prefix, namespaces)


def bound(
    specs: Iterable[dict[str, Any]], prefix: str = "orion", namespaces: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Return policies as objects, each with its binding; the arguments are those of `policies`."""
    made: list[dict[str, Any]] = []
    for spec in specs:
        name, action = f"{prefix}-{spec.pop('name')}", spec.pop("action", "Deny")
        labels = {"app.kubernetes.io/name": "orion"}
        made.append(_object("ValidatingAdmissionPolicy", name, labels, {"failurePolicy": "Fail", **spec}))
        binding: dict[str, Any] = {"policyName": name, "validationActions": [action]}
        if namespaces:
            binding["matchResources"] = {"namespaceSelector": dict(namespaces)}
        made.append(_object("ValidatingAdmissionPolicyBinding", name, labels, binding))
    return made


def role() -> dict[str, Any]:
    """Return the ClusterRole with all rights of the webhook's service account."""
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
    # A container may define LD_PRELOAD twice; the last definition counts. So each must begin with the hook.
    preloaded = f"{named}.size() > 0 && {named}.all(v, {first})"
    return {
        "name": "pods-have-been-admitted",
        "matchConstraints": {"resourceRules": [_rule(["CREATE"], ["pods"])]},
        "matchConditions": [
            {
                "name": "slots-or-pin",
                "expression": f"'{PINNED_SHARE}' in {_ANNOTATIONS} || {_CLAIMS}.exists(c, c.name == '{CLAIM}' || "
                f"{_OF_OPERATOR}) || {ASKS_FOR_SLOTS}",
            }
        ],
        "variables": [{"name": "withSlots", "expression": f"{_CONTAINERS}.filter(c, {_asks('c')})"}],
        "validations": [
            {
                "expression": "variables.withSlots.size() > 0",
                "message": f"only Orion's webhook may write annotation {PINNED_SHARE} and name a claim {CLAIM}, and "
                "only for pods that ask for slots; remove them",
                "reason": "Forbidden",
            },
            {
                "expression": f"'{PINNED_SHARE}' in {_ANNOTATIONS} && '{PRIORITY}' in {_ANNOTATIONS}",
                "message": f"this pod asks for slots ({WRITTEN}..., or a claim named {CLAIM}) but has not been through "
                f"Orion's webhook, which writes {PINNED_SHARE}; is the webhook running?",
                "reason": "Forbidden",
            },
            {
                "expression": f"{_CLAIMS}.all(c, c.name == '{CLAIM}' || !{_OF_OPERATOR})",
                "message": f"templates orion-hp-... and orion-be-... are for the claim that Orion's webhook names "
                f"{CLAIM}; write a template of your own",
                "reason": "Forbidden",
            },
            {
                "expression": f"variables.withSlots.all(c, {preloaded})",
                "message": f"a container that asks for slots does not preload Orion's hook first ({hook}); another "
                "webhook may have changed its LD_PRELOAD after Orion's",
                "reason": "Forbidden",
            },
        ],
    }


def _marks_stay() -> dict[str, Any]:
    """Return the policy that keeps Orion's annotations and labels of existing pods.

    The API server evaluates this policy at every write of every pod, including the status. Any user can create a pod
    with 40 000 annotations. So the maps are read once, into variables, and loops run only over maps that have changed.
    If a loop read the maps itself, one evaluation could take half a minute.
    """
    read = {
        "annotations": _ANNOTATIONS,
        "oldAnnotations": "oldObject.metadata.?annotations.orValue({})",
        "labels": _LABELS,
        "oldLabels": "oldObject.metadata.?labels.orValue({})",
    }

    def equal(new: str, old: str) -> str:
        both = f"variables.{new}", f"variables.{old}"
        same = f"(name in {both[0]}) && (name in {both[1]}) && {both[0]}[name] == {both[1]}[name]"
        marks = " && ".join(f"{each}.all(name, !{_IS_OURS} || ({same}))" for each in both)
        return f"({both[0]} == {both[1]} || ({marks}))"

    resources = ["pods", "pods/status", "pods/ephemeralcontainers", "pods/resize"]
    return {
        "name": "pods-keep-their-marks",
        "matchConstraints": {"resourceRules": [_rule(["UPDATE"], resources)]},
        "variables": [{"name": name, "expression": expression} for name, expression in read.items()],
        "validations": [
            {
                "expression": f"{equal('annotations', 'oldAnnotations')} && {equal('labels', 'oldLabels')}",
                "message": f"annotations and labels {PREFIX}... and {WRITTEN}... of a pod cannot be changed once it "
                "exists; delete the pod and create it again",
                "reason": "Forbidden",
            }
        ],
    }


def _bindings_bring_no_marks() -> dict[str, Any]:
    both = f"{_ANNOTATIONS}, {_LABELS}"
    none = f"![{both}].exists(marks, marks.exists(name, {_IS_OURS}))"
    return {
        "name": "bindings-bring-no-marks",
        "matchConstraints": {"resourceRules": [_rule(["CREATE"], ["bindings", "pods/binding"])]},
        "validations": [
            {
                "expression": none,
                "message": f"a Binding cannot give annotations or labels {PREFIX}... or {WRITTEN}... to a pod; remove "
                "them from the Binding",
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
    """Return the texts of the generated files, by file name."""
    service = {"name": "orion-webhook", "namespace": "orion-system", "path": PATH, "port": 443}
    head = "# Generated by `python -m orion.operator.webhook.manifests`. The reasons are in that module.\n"
    return {
        ROLE_FILE: head + _text([role()]),
        WEBHOOK_FILE: f"{head}# The chart replaces the service. With certificates.source `given`, it sets caBundle.\n"
        + _text([webhook({"service": service})]),
        POLICIES_FILE: head + _text(policies(Defaults().hook)),
        CEILINGS_FILE: head.replace("that module", "ceilings.py beside it") + _text(bound(ceilings.policies())),
    }


def _text(objects: list[dict[str, Any]]) -> str:
    return yaml.safe_dump_all(objects, sort_keys=False, width=4_000)


def main() -> int:
    """Write the files; with --check, only report whether they are out of date."""
    parser = argparse.ArgumentParser(description="Write the chart's admission manifests.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a file is out of date")
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
