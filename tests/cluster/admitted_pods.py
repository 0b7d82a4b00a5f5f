"""Pods and shares for tests of admission, and what the API server answers to a pod."""

import functools
from typing import Any

from kubernetes import client

from tests.cluster.refusals import refusal as said
from tests.waiting import eventually

HP: dict[str, Any] = {"resources": {"limits": {"orion.gpu/hp": "1"}}}
""" The limits of a container that requests an hp slot itself. """


def pod(name: str, priority: str | None = None, **changes: Any) -> dict[str, Any]:
    """Return a pod with one container that requests one GPU; `changes` sets dotted paths of its spec."""
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
    """Return the sentence with which a pod is refused, or nothing."""
    return said(client.CoreV1Api(api).create_namespaced_pod, namespace, made, dry_run="All", _preload_content=False)


def wait_until_admission_works(api: client.ApiClient, namespace: str) -> None:
    """Wait until the API server asks the webhook and applies every policy for the pods of a namespace.

    The API server learns of the webhook and of each policy separately, so this waits for each of them.
    """
    core = client.CoreV1Api(api)
    forged, unknown = pod("probe", annotations={"orion.gpu/share": ""}), pod("probe", "nonsense")
    eventually(lambda: "only Orion's webhook" in refusal(api, namespace, forged))
    eventually(lambda: "must be hp or be" in refusal(api, namespace, unknown))
    core.create_namespaced_pod(namespace, pod("probe"))
    marked = {"metadata": {"annotations": {"orion/priority": "hp"}}}
    binding = {"metadata": {"name": "probe", **marked["metadata"]}, "target": {"kind": "Node", "name": "none"}}
    dry = functools.partial(said, dry_run="All", _preload_content=False)
    eventually(lambda: "cannot be changed once it exists" in dry(core.patch_namespaced_pod, "probe", namespace, marked))
    eventually(lambda: "a Binding cannot give" in dry(core.create_namespaced_pod_binding, "probe", namespace, binding))
    core.delete_namespaced_pod("probe", namespace, grace_period_seconds=0)
