"""Orion on a cluster of this machine as users install it: the chart, with Helm, and Orion's image.

`Orion` (orion.py) instead runs processes from this checkout, without an image. The image here has the chart's default
name, so `helm install orion charts/orion --set simulatedGPUs=2` is enough here too.
"""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from testbed import helm
from testbed.access import Access
from testbed.helm import CHART
from testbed.waiting import wait_until

NAME, NAMESPACE = "orion", "orion-system"
RESOURCES = ("orion.gpu/hp", "orion.gpu/be")
PATIENCE = 600.0
""" Seconds: ten times the limit for an installation. """
WORKLOADS = ("deployments", "daemonsets")


class Release:
    """One release of the chart; it may not be installed yet.

    Args:
        access: to the cluster.
        name: of the release.
        namespace: the installation makes it if it does not exist.
        kubeconfig: of the user who installs; by default the administrator's.
    """

    def __init__(
        self, access: Access, name: str = NAME, namespace: str = NAMESPACE, kubeconfig: Path | None = None
    ) -> None:
        self._access, self.name, self.namespace = access, name, namespace
        self._kubeconfig = kubeconfig or access.kubeconfig

    def install(self, values: Mapping[str, Any], chart: Path = CHART) -> float:
        """Install, and return the seconds until everything is ready.

        Raises:
            Failed: Helm reported an error.
            Failed: Helm succeeded, but a pod does not become ready.
        """
        return self._ready_after("install", self.name, str(chart), "--create-namespace", *_set(values))

    def begin(self, values: Mapping[str, Any], chart: Path = CHART) -> None:
        """Install without waiting, for releases that will never become ready.

        Raises:
            Failed: Helm reported an error.
        """
        self._helm("install", self.name, str(chart), "--create-namespace", *_set(values))

    def there(self) -> bool:
        """Return whether Helm knows the release, in any state."""
        return bool(self._helm("list", "--all", "--short", f"--filter=^{self.name}$").strip())

    def upgrade(self, values: Mapping[str, Any], chart: Path = CHART) -> float:
        """Upgrade, and return the seconds until everything is ready; raises as `install`."""
        return self._ready_after("upgrade", self.name, str(chart), *_set(values))

    def rollback(self, revision: int = 0) -> float:
        """Roll back to a revision, and return the seconds until everything is ready; raises as `install`.

        Args:
            revision: its number; 0: the previous one.
        """
        return self._ready_after("rollback", self.name, str(revision))

    def test(self) -> str:
        """Run the chart's tests, and return their output and Helm's.

        Raises:
            Failed: a test of the chart failed.
        """
        return self._helm("test", self.name, "--logs", "--timeout", f"{PATIENCE:.0f}s")

    def uninstall(self, wanted: bool = True) -> float:
        """Uninstall, and return the seconds until every pod is gone.

        Args:
            wanted: whether a missing release is an error.

        Raises:
            Failed: Helm reported an error.
        """
        began = time.monotonic()
        optional = () if wanted else ("--ignore-not-found",)
        self._helm("uninstall", self.name, "--wait", "--timeout", f"{PATIENCE:.0f}s", *optional)
        self._until("goes", lambda: not self.pods())
        return time.monotonic() - began

    def pods(self) -> list[dict[str, Any]]:
        """Return the release's pods."""
        selector = f"labelSelector=app.kubernetes.io/instance%3D{self.name}"
        found = self._access.read(f"/api/v1/namespaces/{self.namespace}/pods?{selector}")
        return found["items"] if found else []

    def ready(self) -> bool:
        """Return whether every pod of the release exists, is up to date and ready.

        Helm's --wait accepts a DaemonSet as soon as no more pods are missing than an update may replace at once; with
        one node, that is when no pod runs.
        """
        for kind in WORKLOADS:
            found = self._access.read(f"/apis/apps/v1/namespaces/{self.namespace}/{kind}") or {"items": []}
            if not all(_is_ready(each) for each in found["items"]):
                return False
        return True

    def allocatable(self, node: str) -> dict[str, int]:
        """Return how many slots a node offers to pods."""
        found = self._access.read(f"/api/v1/nodes/{node}") or {}
        amounts = found.get("status", {}).get("allocatable", {})
        return {name: int(amounts.get(name, 0)) for name in RESOURCES}

    def _ready_after(self, *command: str) -> float:
        began = time.monotonic()
        self._helm(*command, "--wait", "--timeout", f"{PATIENCE:.0f}s")
        self._until("gets ready", self.ready)
        return time.monotonic() - began

    def _helm(self, *command: str) -> str:
        named = [*command, "--namespace", self.namespace]
        return helm.run(*named, kubeconfig=self._kubeconfig, patience=1.5 * PATIENCE)

    def _until(self, what: str, condition: Callable[[], bool]) -> None:
        wait_until(condition, f"not all of {self.name} {what}", patience=PATIENCE)


def _is_ready(workload: Mapping[str, Any]) -> bool:
    """Return whether a Deployment or DaemonSet is rolled out; with OnDelete, pods may be of an older revision."""
    status, by_hand = workload.get("status", {}), workload["spec"].get("updateStrategy", {}).get("type") == "OnDelete"
    if status.get("observedGeneration", 0) < workload["metadata"]["generation"]:
        return False
    if "desiredNumberScheduled" in status:
        wanted, updated = status["desiredNumberScheduled"], status.get("updatedNumberScheduled", 0)
        return bool(status.get("numberReady", 0) == wanted and (by_hand or updated == wanted))
    wanted = workload["spec"]["replicas"]
    counts = (status.get(name, 0) for name in ("replicas", "updatedReplicas", "readyReplicas"))
    return set(counts) == {wanted}


def image_name(tag: str = "", chart: Path = CHART) -> str:
    """Return the full name under which a container runtime looks up the chart's image."""
    repository = yaml.safe_load((chart / "values.yaml").read_text())["image"]["repository"]
    return f"docker.io/{repository}:{tag or version(chart)}"


def version(chart: Path = CHART) -> str:
    """Return the version of Orion that a chart installs by default, which is its image's tag."""
    return str(yaml.safe_load((chart / "Chart.yaml").read_text())["appVersion"])


def _set(values: Mapping[str, Any]) -> list[str]:
    return [part for name, value in values.items() for part in ("--set", f"{name}={_text(value)}")]


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
