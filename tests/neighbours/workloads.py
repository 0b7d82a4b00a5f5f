"""Workloads of other controllers whose pods share GPUs: their users' requests, and what became of the pods."""

import json
from typing import Any

from kubernetes import client

from orion.crds.annotations import PINNED_SHARE
from tests.cluster.conftest import Kubectl
from tests.node.gpu_tenants import Manifest, training
from tests.waiting import eventually

_REFUSALS = ("denied", "forbidden", "is invalid")


def template(priority: str = "be", **labels: str) -> Manifest:
    """The template of a pod that computes until it is ended, with one slot."""
    pod = training()
    container = pod["spec"]["containers"][0]
    del container["resources"]["limits"]["orion.gpu/be"]
    container["resources"]["limits"][f"orion.gpu/{priority}"] = "1"
    pod["spec"]["terminationGracePeriodSeconds"] = 1
    return {"metadata": {"labels": labels, "annotations": {"orion/priority": priority}}, "spec": pod["spec"]}


def share(name: str, priority: str, **labels: str) -> Manifest:
    """A GPUShare of the pods with these labels."""
    spec = {"priority": priority, "selector": {"matchLabels": labels}, "memory": {"limit": "6Gi"}}
    return {"apiVersion": "orion.gpu/v1alpha1", "kind": "GPUShare", "metadata": {"name": name}, "spec": spec}


class Workloads:
    """The workloads of one namespace, through kubectl, as a user who may do everything there."""

    def __init__(self, api: client.ApiClient, namespace: str, kubectl: Kubectl) -> None:
        self.namespace, self._core, self._kubectl = namespace, client.CoreV1Api(api), kubectl

    def apply(self, *manifests: Manifest) -> None:
        """Apply manifests."""
        for manifest in manifests:
            self._kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", given=manifest)

    def patch(self, kind: str, name: str, patch: Manifest, *options: str) -> None:
        """Change fields of an object (JSON merge patch)."""
        self._kubectl("patch", kind, name, "--type=merge", "-p", json.dumps(patch), *options)

    def delete(self, kind: str, name: str) -> None:
        """Delete an object, and return when all pods are gone."""
        self.remove(kind, name)
        eventually(lambda: not self.pods(), what=f"the pods of {kind} {name} did not end")

    def remove(self, kind: str, *names: str) -> None:
        """Delete objects together, and return when they are gone."""
        self._kubectl("delete", kind, *names, "--timeout=60s", seconds=90)

    def named(self, kind: str, part: str) -> str:
        """Wait for an object of a kind whose name has a part; return its name."""

        def found() -> list[str]:
            lines = self._kubectl("get", kind, "-o", "name").split()
            return [name for name in (line.partition("/")[2] for line in lines) if part in name]

        return eventually(found)[0]

    def read(self, kind: str, name: str) -> dict[str, Any]:
        """Read an object."""
        found: dict[str, Any] = json.loads(self._kubectl("get", kind, name, "-o", "json"))
        return found

    def pods(self, **labels: str) -> dict[str, client.V1Pod]:
        """The pods with these labels, by name."""
        selector = ",".join(f"{name}={value}" for name, value in labels.items())
        found = self._core.list_namespaced_pod(self.namespace, label_selector=selector).items
        return {pod.metadata.name: pod for pod in found}

    def running(self, count: int, **labels: str) -> dict[str, client.V1Pod]:
        """Wait until exactly `count` pods with these labels run; return them."""

        def run() -> list[dict[str, client.V1Pod]]:
            pods = self.pods(**labels)
            living = all(pod.status.phase == "Running" and not pod.metadata.deletion_timestamp for pod in pods.values())
            return [pods] if len(pods) == count and living else []

        try:
            return eventually(run)[0]
        except AssertionError as late:
            late.add_note(self._described())
            raise

    def fail(self, pod: str) -> None:
        """Make a pod fail: its time is over."""
        self.patch("pod", pod, {"spec": {"activeDeadlineSeconds": 1}})

    def governed_by(self, pod: client.V1Pod) -> str:
        """The share that was written into a pod when it was created; empty: none governed it then."""
        return str(pod.metadata.annotations[PINNED_SHARE])

    def refusals(self) -> list[str]:
        """Events of this namespace that say that a request was refused."""
        events = self._core.list_namespaced_event(self.namespace).items
        return [each.message for each in events if any(word in (each.message or "") for word in _REFUSALS)]

    def _described(self) -> str:
        """The pods and the last events, for a failure."""
        events = self._core.list_namespaced_event(self.namespace).items
        lines = [f"{pod.metadata.name} {pod.status.phase}" for pod in self.pods().values()]
        return "\n".join([*lines, *(f"{each.reason}: {each.message}" for each in events[-30:])])
