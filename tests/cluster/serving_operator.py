"""A real operator that serves the agents of a test, and writes nothing.

Somebody else holds its Lease, so it stands by for ever: a replica on standby serves agents, too. So its writes do not
disturb the tests of the operator on the same control plane.
"""

import contextlib
import datetime
import uuid
from collections.abc import Iterator
from pathlib import Path

from kubernetes import client

from orion.node_pods import AUDIENCE
from testbed.ports import free_port
from tests.cluster.operator_process import OperatorProcess
from tests.waiting import eventually

_ACCOUNT, _NAME = "orion-agent", "orion-operator"
_FOR_EVER = 2**31 - 1
""" Seconds. """


class ServingOperator:
    """An operator that serves all agents of a control plane.

    Args:
        api: the administrator's client.
        kubeconfig: access for the operator.
        folder: for its log.
    """

    def __init__(self, api: client.ApiClient, kubeconfig: Path, folder: Path) -> None:
        self._core, self.namespace = client.CoreV1Api(api), f"operator-{uuid.uuid4().hex[:10]}"
        self._address = f"localhost:{free_port()}"
        self._core.create_namespace({"metadata": {"name": self.namespace}})
        self._core.create_namespaced_service_account(self.namespace, {"metadata": {"name": _ACCOUNT}})
        self._core.create_namespaced_config_map(self.namespace, {"metadata": {"name": _NAME}})
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        held = {"holderIdentity": "nobody", "leaseDurationSeconds": _FOR_EVER, "acquireTime": now, "renewTime": now}
        lease = {"metadata": {"name": _NAME}, "spec": held}
        client.CoordinationV1Api(api).create_namespaced_lease(self.namespace, lease)
        options = ["--lease-namespace", self.namespace, "--node-pods-address", self._address]
        self.process = OperatorProcess(kubeconfig, folder, *options, "--node-pods-name", "localhost", serves=False)

    def start(self) -> None:
        """Start the operator; return when it serves agents."""
        self.process.start()
        eventually(self.process.knows_all)

    def options(self, node: str, folder: Path) -> list[str]:
        """Return the options of the agent of a node, and write its token into `folder`."""
        bound = {"kind": "Node", "apiVersion": "v1", "name": node}
        wanted = {"audiences": [AUDIENCE], "expirationSeconds": 3600, "boundObjectRef": bound}
        made = self._core.create_namespaced_service_account_token(_ACCOUNT, self.namespace, {"spec": wanted})
        token = folder / "operator-token"
        token.write_text(made.status.token)
        name = f"{self.namespace}/{_NAME}"
        return ["--operator", name, "--operator-address", self._address, "--operator-token", str(token)]

    def published(self) -> dict[str, str]:
        """Return the replicas' certificates."""
        return self._core.read_namespaced_config_map(_NAME, self.namespace).data or {}

    def close(self) -> None:
        """End the operator."""
        if not self.process.ended:
            self.process.end()
        print(self.process.log.read_text())  # pytest shows it if the test fails
        self._core.delete_namespace(self.namespace)


@contextlib.contextmanager
def serving_operator(api: client.ApiClient, kubeconfig: Path, folder: Path) -> Iterator[ServingOperator]:
    """Run an operator until the end of the block."""
    made = ServingOperator(api, kubeconfig, folder)
    try:
        made.start()
        yield made
    finally:
        made.close()
