"""Pods and shares as tests of admission put them together, and what the API server says to a pod."""

import json
from typing import Any

from kubernetes import client


def pod(name: str, priority: str | None = None, **changes: Any) -> dict[str, Any]:
    """Return a pod with one container that asks for one GPU, changed by dotted paths of its spec."""
    annotations = changes.pop("annotations", {}) | ({"orion/priority": priority} if priority else {})
    container = {"name": "main", "image": "localhost/none:1", **changes.pop("container", {})}
    if priority is not None:
        container.setdefault("resources", {"limits": {"nvidia.com/gpu": "1"}})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations, "labels": changes.pop("labels", {})},
        "spec": {"containers": [container], **changes},
    }


def share(name: str, priority: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "orion.gpu/v1alpha1",
        "kind": "GPUShare",
        "metadata": {"name": name},
        "spec": {"priority": priority, **spec},
    }


def refusal(api: client.ApiClient, namespace: str, made: dict[str, Any]) -> str:
    """Return the sentence that a pod is refused with; empty: it is not."""
    try:
        client.CoreV1Api(api).create_namespaced_pod(namespace, made, dry_run="All")
    except client.ApiException as error:
        return str(json.loads(error.body)["message"])
    return ""
