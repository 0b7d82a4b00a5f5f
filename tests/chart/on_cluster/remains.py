"""Finds what an uninstalled Orion has left in a cluster, apart from the definitions and their objects."""

import json
from typing import Any

from testbed.release import Release
from tests.cluster.conftest import Kubectl
from tests.waiting import eventually

EVERY_NAMESPACES = {"configmap/kube-root-ca.crt", "serviceaccount/default"}
UNKNOWN = {("Unknown", "Uninstalled")}


def left(kubectl: Kubectl, release: Release) -> list[str]:
    """Return everything that an installation has created and that still exists, apart from the definitions.

    These are all objects with the release's label, all objects in its namespace (the operator recreates some without
    labels), and Orion's marks on nodes.
    """

    def kinds(*of: str) -> str:
        listed = kubectl("api-resources", "--verbs=list", "--output=name", *of).split()
        return ",".join(kind for kind in listed if not kind.startswith(("events", "componentstatuses", "bindings")))

    names = ("--output=name", "--ignore-not-found")
    selector = f"--selector=app.kubernetes.io/instance={release.name}"
    labelled = kubectl("get", kinds(), selector, "--all-namespaces", *names).split()
    inside = kubectl("get", kinds("--namespaced=true"), f"--namespace={release.namespace}", *names).split()
    found = {each for each in labelled if not each.startswith("customresourcedefinition")}
    return sorted(found | set(inside) - EVERY_NAMESPACES | set(marks_of_nodes(kubectl)))


def marks_of_nodes(kubectl: Kubectl) -> list[str]:
    """Return Orion's labels, annotations, conditions and taints of nodes, except the opt-in label."""
    found = []
    for node in _items(kubectl, "nodes"):
        meta, name = node["metadata"], node["metadata"]["name"]
        marks = [*meta.get("labels", {}), *meta.get("annotations", {})]
        marks += [each["type"] for each in node["status"].get("conditions", [])]
        marks += [each["key"] for each in node["spec"].get("taints", [])]
        found += [f"node/{name}: {mark}" for mark in marks if mark.startswith("orion.gpu/")]
    return found


def nothing_is_left(kubectl: Kubectl, release: Release) -> None:
    """Return when nothing is left; dependents of deleted objects disappear a moment later."""
    eventually(lambda: not left(kubectl, release), lambda: f"still there: {', '.join(left(kubectl, release))}")


def nothing_is_claimed(kubectl: Kubectl) -> None:
    """Assert that all conditions of the remaining GPUs and shares are Unknown."""
    for kind in ("gpudevices", "gpushares"):
        for each in _items(kubectl, kind):
            said = {(condition["status"], condition["reason"]) for condition in each["status"]["conditions"]}
            assert said == UNKNOWN, each
            assert each["status"].get("health", "Unknown") == "Unknown", each
            assert not {"clients", "clientCount", "heldSlots", "pods"} & each["status"].keys(), each


def _items(kubectl: Kubectl, kind: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = json.loads(kubectl("get", kind, "--all-namespaces", "--output=json"))["items"]
    return items
