"""Runs `orion certificates` as processes of a test, with exactly the rights that the chart ships; reads the results."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kubernetes import client

from orion.operator.certificates.bundles import Configuration
from orion.operator.certificates.settings import CertificateSettings
from orion.operator.certificates.state import State, read_state
from tests.cluster.rights import bind

ROLE = Path(__file__).parents[2] / "charts" / "orion" / "files" / "certificates-role.yaml"
SECRET = CertificateSettings().secret
# Seconds. There is one API server, so these are short. A leaf reaches these webhooks in a tenth of the second time.
SPREAD, DROP_RETIRED_AFTER, LOOK = 2.0, 30.0, 0.3


class Certificates:
    """The certificates of one namespace, and the processes that renew them.

    Args:
        api: the administrator's client.
        namespace: the Secret's namespace; the webhook configuration has the same name.
        kubeconfig: the kubeconfig of the user as whom the processes run.
        folder: the folder for the processes' log.
    """

    def __init__(self, api: client.ApiClient, namespace: str, kubeconfig: Path, folder: Path) -> None:
        self.namespace, self._kubeconfig, self.log = namespace, kubeconfig, folder / "certificates.log"
        self._core, self._admission = client.CoreV1Api(api), client.AdmissionregistrationV1Api(api)

    def command(self, name: str, *options: str) -> list[str]:
        """Return the command line of `orion certificates NAME` for this namespace."""
        whose = ["--namespace", self.namespace, "--configuration", self.namespace]
        own = ["--kubeconfig", str(self._kubeconfig), *whose, *options]
        return [sys.executable, "-m", "orion.cli", "certificates", name, *own]

    def ask(self, name: str, *options: str) -> str:
        """Run `orion certificates NAME`, and return its output."""
        done = subprocess.run(
            self.command(name, *options), capture_output=True, text=True, timeout=60, env=_environment()
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    @contextlib.contextmanager
    def renewed_by_a_process(self) -> Iterator[subprocess.Popen[bytes]]:
        """Run a process that renews the certificates, and kill it at the end of the block."""
        times = ["--spread", str(SPREAD), "--drop-retired-after", str(DROP_RETIRED_AFTER), "--look-every", str(LOOK)]
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                self.command("run", *times, "--name", "127.0.0.1"), stdout=log, stderr=log, env=_environment()
            )
        try:
            yield process
            assert process.poll() is None, self.log.read_text()
        finally:
            process.kill()
            process.wait(10)

    @property
    def state(self) -> State:
        """The content of the Secret."""
        try:
            secret: Any = self._core.read_namespaced_secret(SECRET, self.namespace)
        except client.ApiException as error:
            if error.status != 404:
                raise
            return State()
        return read_state(secret.data or {})

    def trusted(self) -> list[set[str]]:
        """Return the authorities of each webhook in the configuration."""
        found: Any = self._admission.read_mutating_webhook_configuration(self.namespace)
        webhooks = [{"clientConfig": {"caBundle": each.client_config.ca_bundle or ""}} for each in found.webhooks]
        bundles = Configuration(self.namespace, {"webhooks": webhooks}).bundles
        return [{each.fingerprint for each in bundle} for bundle in bundles]

    def has_signed(self) -> bool:
        """Return whether the authority has signed the leaf."""
        return self.state.is_signed

    def has_logged_more(self, than: int) -> bool:
        """Return whether the processes have logged more than `than` characters."""
        return len(self.log.read_text()) > than

    def at_rest(self) -> bool:
        """Return whether the leaf's authority is the only one, in the Secret and in each caBundle."""
        state = self.state
        wanted = {each.fingerprint for each in state.trusted}
        return state.is_signed and not state.retired and all(bundle == wanted for bundle in self.trusted())


def grant_rights(
    api: client.ApiClient, user: str, namespace: str, change: Callable[[dict[str, Any]], None] = lambda _: None
) -> None:
    """Give a user the chart's role for the configuration that is named after the namespace.

    Args:
        api: the administrator's client.
        user: the user's name.
        namespace: the namespace of the role; the configuration has the same name.
        change: called with each role before the role is created.
    """

    def renamed(role: dict[str, Any]) -> None:
        for rule in role["rules"]:
            if rule.get("resourceNames") == ["orion"]:
                rule["resourceNames"] = [namespace]
        change(role)

    bind(api, ROLE, user, namespace, renamed)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
