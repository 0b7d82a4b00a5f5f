"""Orion on a cluster of this machine, run from this checkout: its API types, RBAC, admission and processes.

Operator and webhook run in the control plane's network, an agent and a device plugin on each node. Each has its own
identity and exactly the RBAC rules that the chart ships; the agent's identity is bound to its node, as a pod's is. No
image is built: the processes run the checkout's files.
"""

import base64
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from testbed import example_image, node_settings
from testbed.access import Access
from testbed.cluster import Cluster
from testbed.errors import Failed
from testbed.node import Node
from testbed.process import Process, Processes
from testbed.waiting import wait_until

CHART = Path(__file__).resolve().parents[1] / "charts" / "orion"
NAMESPACE = "orion-system"
ROLES = {
    "operator": "operator-role.yaml",
    "webhook": "webhook-role.yaml",
    "agent": "agent-role.yaml",
    "dra-driver": "dra/driver-role.yaml",
}
OBJECTS = (
    "policies.yaml",
    "ceilings.yaml",
    "agent-policy.yaml",
    "operator-policy.yaml",
    "webhook-policy.yaml",
    "dra/driver-policy.yaml",
)
WEBHOOK_PORT, HEALTH_PORT, OPERATOR_PORT, NODE_PODS_PORT = 9443, 9444, 9445, 9446
AGENT_PORT, PLUGIN_PORT = 9435, 9436
RESOURCES = ("orion.gpu/hp", "orion.gpu/be")
AUDIENCE = "orion-operator"
""" Of the agents' tokens for the operator. """
COMPONENTS = ("plugin", "driver", "agent", "mps")
""" The processes of a node. """


class Orion(Processes):
    """Orion, installed on a running cluster with nodes.

    Args:
        cluster: started; its processes and Orion's end with the same thread.
        configuration: of all nodes, in the format of the nodes' configuration file.
        gpus: number of simulated GPUs on each node.
        options: additional options for the commands `agent`, `device-plugin` and `dra-driver`.
    """

    def __init__(
        self,
        cluster: Cluster,
        configuration: Mapping[str, Any] | None = None,
        gpus: int = 2,
        options: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> None:
        super().__init__(cluster.folder / "logs")
        self.cluster, self.gpus, self._options = cluster, gpus, options
        self.folder = cluster.folder / "orion"
        self.configuration = self.folder / "nodes.yaml"
        self._settings = dict(configuration or {})
        self.allocation = "device-plugin"

    def __enter__(self) -> "Orion":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def access(self) -> Access:
        """Access to the cluster."""
        return self.cluster.access

    def start(self) -> None:
        """Install Orion; return when every node advertises slots and has the image of the examples.

        Raises:
            Failed: a process ended, or was not ready in time.
        """
        self.folder.mkdir()
        self.configure(self._settings)
        self._kubectl("create", "namespace", NAMESPACE)
        self._kubectl("apply", "--server-side", "-f", str(CHART / "files" / "crds"))
        wait_until(self._are_kinds_served, "the API server does not accept Orion's kinds")
        for component, file in ROLES.items():
            self._give_rights(component, CHART / "files" / file)
        for name in OBJECTS:
            self._kubectl("apply", "--server-side", "-f", str(CHART / "files" / name))
        self._apply({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "orion-operator", "namespace": NAMESPACE},
        })  # fmt: skip
        self.begin_operator()
        self._start_webhook()
        example = example_image.example().write(self.folder / "example.tar")
        for node in self.cluster.nodes.values():
            node.import_image(example)
            self.start_on(node)
        for node in self.cluster.nodes.values():
            self.wait_until_advertised(node)

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Write the nodes' configuration file; agents and plugins reload it by themselves."""
        fresh = self.configuration.with_suffix(".new")
        fresh.write_text(yaml.safe_dump({"version": "v1", **settings}))
        fresh.replace(self.configuration)

    def start_on(self, node: Node) -> None:
        """Start all processes of a node that has just been powered on; the earlier ones ended with the node."""
        self.begin_mps_daemon(node)
        self.begin_agent(node)
        self.begin_plugin(node)

    def begin_agent(self, node: Node) -> None:
        """Start the agent of a node."""
        kubeconfig, token = self._bound_to(node)
        command = ["agent", "--gpus", "simulated", "--node-name", node.name, "--kubeconfig", str(kubeconfig)]
        command += ["--operator-address", f"{self.cluster.control_plane.address}:{NODE_PODS_PORT}"]
        command += ["--operator", f"{NAMESPACE}/orion-operator", "--operator-token", str(token)]
        command += ["--configuration", str(self.configuration), "--metrics-address", f"{node.address}:{AGENT_PORT}"]
        self._begin(f"{node.name}-agent", command, node)

    def begin_mps_daemon(self, node: Node) -> None:
        """Start the MPS daemon of a node; it idles until a GPUDevice has `mode: mps`."""
        self._begin(f"{node.name}-mps", ["mps-daemon"], node)

    def begin_plugin(self, node: Node, name: str = "plugin") -> None:
        """Start a device plugin of a node; with another name, a second one beside the first."""
        command = ["device-plugin", "--node-name", node.name, "--configuration", str(self.configuration)]
        command += ["--metrics-address", f"{node.address}:{PLUGIN_PORT}" if name == "plugin" else ""]
        self._begin(f"{node.name}-{name}", command, node)

    def begin_driver(self, node: Node, name: str = "driver") -> None:
        """Start a DRA driver of a node, in place of its device plugin; with another name, a second one beside it."""
        kubeconfig = self.access.kubeconfig_with(
            self._token(node, account="orion-dra-driver"), self.folder / f"{node.name}-driver.kubeconfig"
        )
        command = ["dra-driver", "--node-name", node.name, "--kubeconfig", str(kubeconfig)]
        command += ["--configuration", str(self.configuration), "--cdi-folder", node_settings.CDI_FOLDER]
        command += ["--metrics-address", f"{node.address}:{PLUGIN_PORT}" if name == "driver" else ""]
        self._begin(f"{node.name}-{name}", command, node)

    def allocate(self, allocation: str) -> None:
        """Give slots to pods by a device plugin, or by ResourceClaims (`dra`), from now on.

        Operator and webhook start again. The nodes' plugins and drivers are the caller's.
        """
        for name in ("operator", "webhook"):
            self._processes.pop(name).stop(5)
        self.allocation = allocation
        if allocation == "dra":
            self._give_rights("operator", CHART / "files" / "dra" / "operator-role.yaml")
            for name in ("classes.yaml", "claims-policy.yaml"):
                self._kubectl("apply", "--server-side", "-f", str(CHART / "files" / "dra" / name))
        self.begin_operator()
        self._start_webhook()

    def end(self, node: Node, component: str, patience: float = 20) -> None:
        """End `agent`, `plugin`, `driver` or `mps` of a node: SIGTERM, and SIGKILL after `patience` seconds."""
        self._processes.pop(f"{node.name}-{component}").stop(patience)

    def end_on(self, node: Node, patience: float = 20) -> None:
        """End all processes of a node; `start_on` starts them again."""
        for component in COMPONENTS:
            if f"{node.name}-{component}" in self._processes:
                self.end(node, component, patience)

    def log(self, name: str) -> str:
        """Return the log of a process: `operator`, `webhook`, `NODE-agent`, `NODE-plugin`, `NODE-mps`."""
        return self._log(name).read_text(errors="replace")

    def _log(self, name: str) -> Path:
        """Return the path of a process's log: beside the logs of the cluster, which are kept after a failure."""
        return self._logs / f"orion-{name}.log"

    def runs(self, node: Node, component: str) -> bool:
        """Return whether `agent` or `plugin` of a node runs now; one that has crashed does not."""
        process = self._processes.get(f"{node.name}-{component}")
        return process is not None and process.runs

    def pids(self) -> dict[str, int]:
        """Return the IDs of all processes that should run."""
        return {f"orion/{name}": pid for name, pid in super().pids().items()}

    def stop(self) -> None:
        """End all processes of Orion; the objects that Orion made in the cluster stay."""
        for process in self._processes.values():
            process.stop(5)
        self._processes.clear()

    def wait_until_advertised(self, node: Node) -> None:
        """Return when the node advertises slots of both kinds.

        Raises:
            Failed: the node did not advertise them in time, or a process ended.
        """
        self._wait(f"{node.name} advertised no slots", lambda: all(self.allocatable(node).values()))

    def allocatable(self, node: Node) -> dict[str, int]:
        """Return how many slots a node offers to pods."""
        found = self.access.read(f"/api/v1/nodes/{node.name}") or {}
        amounts = found.get("status", {}).get("allocatable", {})
        return {name: int(amounts.get(name, 0)) for name in RESOURCES}

    def begin_operator(self) -> None:
        """Start the operator."""
        address = self.cluster.control_plane.address
        command = ["operator", "--kubeconfig", str(self._identity("operator")), "--lease-namespace", NAMESPACE]
        command += ["--node-pods-address", f"{address}:{NODE_PODS_PORT}", "--node-pods-name", address]
        command += ["--allocation", self.allocation]
        self._begin("operator", [*command, "--address", f"{address}:{OPERATOR_PORT}"])

    def end_operator(self) -> None:
        """Kill the operator."""
        self._processes.pop("operator").stop(0)

    def _start_webhook(self) -> None:
        address, keys = self.cluster.control_plane.address, self.folder / "webhook"
        self.access.authority.server("orion-webhook", [address]).write(keys, "tls")
        command = ["webhook", "--kubeconfig", str(self._identity("webhook")), "--certificates", str(keys)]
        command += ["--listen", f"{address}:{WEBHOOK_PORT}", "--health", f"{address}:{HEALTH_PORT}"]
        command += ["--allocation", self.allocation]
        log = self._log("webhook")
        begun = len(self.log("webhook")) if log.exists() else 0
        self._begin("webhook", command)
        self._wait("the webhook did not start to serve", lambda: "reviews on port" in self.log("webhook")[begun:])
        configuration = yaml.safe_load((CHART / "files" / "webhook.yaml").read_text())
        reach = configuration["webhooks"][0]["clientConfig"]
        path = reach.pop("service")["path"]
        reach["url"] = f"https://{address}:{WEBHOOK_PORT}{path}"
        reach["caBundle"] = base64.b64encode(self.access.authority.certificate).decode()
        self._apply(configuration)

    def _give_rights(self, component: str, roles: Path) -> None:
        """Make a component's service account, and bind it to the roles that the chart ships."""
        account = {"name": f"orion-{component}", "namespace": NAMESPACE}
        self._apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
        for role in yaml.safe_load_all(roles.read_text()):
            kind, name = role["kind"], role["metadata"]["name"]
            where = {} if kind == "ClusterRole" else {"namespace": NAMESPACE}
            self._apply(role | {"metadata": role["metadata"] | where})
            binding = {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": f"{kind}Binding",
                "metadata": {"name": name, **where},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
                "subjects": [{"kind": "ServiceAccount", **account}],
            }
            self._apply(binding)

    def _identity(self, component: str) -> Path:
        """Write the kubeconfig of a component's service account."""
        user = f"system:serviceaccount:{NAMESPACE}:orion-{component}"
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}", "system:authenticated"]
        return self.access.kubeconfig_for(user, groups, self.folder / f"{component}.kubeconfig")

    def _bound_to(self, node: Node) -> tuple[Path, Path]:
        """Write the kubeconfig of a node's agent, and its token for the operator; both name the node, as a pod's do."""
        token = self.folder / f"{node.name}-agent.operator-token"
        token.touch(mode=0o600)
        token.write_text(self._token(node, "--audience", AUDIENCE))
        kubeconfig = self.folder / f"{node.name}-agent.kubeconfig"
        return self.access.kubeconfig_with(self._token(node), kubeconfig), token

    def _token(self, node: Node, *options: str, account: str = "orion-agent") -> str:
        """Return a token of a service account that names a node."""
        asked = ["--bound-object-kind", "Node", "--bound-object-name", node.name, *options]
        asked += ["--duration", "8760h"]  # as long as the cluster's certificates, since the token is not renewed
        return self._kubectl("create", "token", account, "--namespace", NAMESPACE, *asked).strip()

    def _begin(self, name: str, arguments: list[str], node: Node | None = None) -> None:
        command = [sys.executable, "-m", "orion.cli", *arguments]
        log = self._log(name)
        if node is None:
            self._processes[name] = Process(name, command, log)
            with self.cluster.control_plane.place.entered():
                self._processes[name].start()
            return
        command += self._options.get(arguments[0], ())
        environment = node.environment | {"ORION_SIM_GPUS": str(self.gpus)}
        self._processes[name] = Process(name, command, log, environment, node.init)
        with node.children():
            self._processes[name].start()

    def _apply(self, manifest: Mapping[str, Any]) -> None:
        self._kubectl("apply", "--server-side", "-f", "-", given=json.dumps(manifest))

    def _are_kinds_served(self) -> bool:
        found = self.access.read("/apis/orion.gpu/v1alpha1") or {"resources": ()}
        return {path.stem for path in (CHART / "files" / "crds").iterdir()} <= {
            one["name"] for one in found["resources"]
        }

    def _kubectl(self, *arguments: str, given: str = "") -> str:
        program = self.cluster.programs["kubectl"]
        command = [str(program), "--kubeconfig", str(self.access.kubeconfig), *arguments]
        done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=90)
        if done.returncode != 0:
            raise Failed(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout
