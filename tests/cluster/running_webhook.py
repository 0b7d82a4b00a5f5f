"""The webhook as a separate process that a control plane calls, only for namespaces with the test's own label."""

import base64
import contextlib
import functools
import os
import re
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from kubernetes import client

from orion.operator.webhook import ceilings, manifests, reviews
from orion.operator.webhook.defaults import Defaults
from testbed.access import Access
from tests.waiting import eventually

LABEL = "orion-test/admission"
SERVICE_ACCOUNT = "system:serviceaccount:orion-system:orion-webhook"


@dataclass
class RunningWebhook:
    """A process with exactly the role that the chart ships, and its configuration at the API server.

    Args:
        access: the control plane.
        folder: the folder for its certificate and kubeconfig.
        name: the name of all cluster-wide objects that are made for the webhook.
        arguments: further arguments of the command.
    """

    access: Access
    folder: Path
    name: str
    arguments: tuple[str, ...] = ()
    port: int = 0
    health: int = 0
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def selector(self) -> dict[str, Any]:
        """The namespace selector of the webhook's configuration."""
        return {"matchLabels": {LABEL: self.name}}

    def issue(self) -> None:
        """Write a new certificate into the webhook's folder."""
        issued = self.access.authority.server("orion-webhook", ["127.0.0.1", "localhost"])
        issued.write(self.folder, "tls")

    def start(self) -> None:
        """Start the webhook, and wait until it is ready."""
        log = self.folder / "log"
        logged = log.stat().st_size if log.exists() else 0
        kubeconfig = self.access.kubeconfig_for(SERVICE_ACCOUNT, [], self.folder / "kubeconfig")
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "orion.cli", "webhook", "--certificates", str(self.folder)),
                    *("--listen", f"127.0.0.1:{self.port}", "--health", f"127.0.0.1:{self.health}"),
                    *("--kubeconfig", str(kubeconfig), "--leave-seconds", "0.2", "--finish-seconds", "5"),
                    *self.arguments,
                ],
                stderr=output,
                env={**os.environ, "NO_PROXY": "127.0.0.1"},
            )
        eventually(functools.partial(self._listens, log, logged))
        eventually(self.is_ready, what=lambda: f"the webhook is not ready: {log.read_text()}")

    def _listens(self, log: Path, logged: int) -> bool:
        """Return whether the webhook has printed its address; later starts use the same ports as the first."""
        assert self.process is not None
        assert self.process.poll() is None, log.read_text()
        new = log.read_bytes()[logged:].decode()
        printed = re.findall(r"metrics: on http://\S+:(\d+)/metrics\n.*reviews on port (\d+)", new)
        if printed:
            self.health, self.port = map(int, printed[-1])
        return bool(printed)

    def is_ready(self) -> bool:
        """Return whether the webhook serves."""
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "log").read_text()
        with contextlib.suppress(OSError):
            return self.read("readyz") == "ok\n"
        return False

    def start_again(self) -> None:
        """Start another process on the port for reviews, once the first, which is ending, no longer listens there.

        The first may still have connections, so it still has its port for health.
        """
        eventually(self._is_free)
        self.health = 0
        self.start()

    def _is_free(self) -> bool:
        """Return whether nobody listens on the port for reviews."""
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) != 0

    def read(self, path: str) -> str:
        """Return the answer of the webhook's plain HTTP port."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://127.0.0.1:{self.health}/{path}", timeout=5) as answer:
            return str(answer.read().decode())

    def stop(self) -> int:
        """End the webhook as the kubelet does; return its exit status."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(timeout=20)

    def configure(self, api: client.ApiClient, policy: str = "Fail") -> None:
        """Apply webhook configuration and policies from the chart's files."""
        admission = client.AdmissionregistrationV1Api(api)
        reach = {
            "url": f"https://127.0.0.1:{self.port}{reviews.PATH}",
            "caBundle": base64.b64encode(self.access.authority.certificate).decode(),
        }
        admission.create_mutating_webhook_configuration(
            manifests.webhook(reach, self.name, self.selector, policy), field_validation="Strict"
        )
        for made in self._policies():
            if made["kind"] == "ValidatingAdmissionPolicy":
                admission.create_validating_admission_policy(made, field_validation="Strict")
            else:
                admission.create_validating_admission_policy_binding(made, field_validation="Strict")

    def _policies(self) -> list[dict[str, Any]]:
        of_ceilings = manifests.bound(ceilings.policies(), self.name, self.selector)
        return manifests.policies(Defaults().hook, self.name, self.selector) + of_ceilings

    def forget(self, api: client.ApiClient) -> None:
        """Delete what `configure` made."""
        admission = client.AdmissionregistrationV1Api(api)
        admission.delete_mutating_webhook_configuration(self.name)
        for made in self._policies():
            name = made["metadata"]["name"]
            if made["kind"] == "ValidatingAdmissionPolicy":
                admission.delete_validating_admission_policy(name)
            else:
                admission.delete_validating_admission_policy_binding(name)


def allow(api: client.ApiClient, name: str) -> None:
    """Give the webhook's service account the role that the chart ships. Several workers may do this at once."""
    authorization = client.RbacAuthorizationV1Api(api)
    made = yaml.safe_load((Path(__file__).parents[2] / manifests.FILES / manifests.ROLE_FILE).read_text())
    made["metadata"]["name"] = name
    account, namespace = SERVICE_ACCOUNT.split(":")[3], SERVICE_ACCOUNT.split(":")[2]
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
    }
    authorization.create_cluster_role(made)
    authorization.create_cluster_role_binding(binding)


def disallow(api: client.ApiClient, name: str) -> None:
    """Delete the role that `allow` made."""
    authorization = client.RbacAuthorizationV1Api(api)
    authorization.delete_cluster_role_binding(name)
    authorization.delete_cluster_role(name)


@contextlib.contextmanager
def running(
    api: client.ApiClient, access: Access, folder: Path, name: str, policy: str = "Fail"
) -> Iterator[RunningWebhook]:
    """Run a webhook that the API server calls for namespaces with its label."""
    webhook = RunningWebhook(access, folder, name)
    webhook.issue()
    allow(api, name)
    try:
        webhook.start()
        webhook.configure(api, policy)
        try:
            yield webhook
        finally:
            webhook.forget(api)
    finally:
        disallow(api, name)
        if webhook.process is not None:
            webhook.stop()
