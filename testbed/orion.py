"""Orion on a cluster of this machine: its API types, rights and admission, and its processes, from this checkout.

Operator and webhook run in the control plane's network, an agent and a device plugin on each node, each under exactly
the rights that the chart ships and with an identity of its own, the agent's bound to its node as a pod's is. What a
person changes in the checkout is what runs; nothing is packed into an image.
"""

import base64
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any

import yaml

from testbed import example_image
from testbed.access import Access
from testbed.cluster import Cluster
from testbed.node import Node
from testbed.process import Process
from testbed.waiting import Failed, wait_until

CHART = Path(__file__).resolve().parents[1] / "charts" / "orion"
NAMESPACE = "orion-system"
ROLES = {"operator": "operator-role.yaml", "webhook": "webhook-role.yaml", "agent": "agent-role.yaml"}
OBJECTS = ("policies.yaml", "agent-policy.yaml", "operator-policy.yaml")
WEBHOOK_PORT, HEALTH_PORT, OPERATOR_PORT, AGENT_PORT, PLUGIN_PORT = 9443, 9444, 9445, 9435, 9436
RESOURCES = ("orion.gpu/hp", "orion.gpu/be")
COMPONENTS = ("plugin", "agent", "mps")
""" What runs on a node. """


class Orion:
    """Orion, installed on a running cluster with nodes.

    Args:
        cluster: started; its processes and Orion's end with the same thread.
        configuration: of all nodes, as the file of nodes' settings has it.
        gpus: simulated ones of each node.
        options: further ones of `agent` and `device-plugin`.
    """

    def __init__(
        self,
        cluster: Cluster,
        configuration: Mapping[str, Any] | None = None,
        gpus: int = 2,
        options: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> None:
        self.cluster, self.gpus, self._options = cluster, gpus, options
        self.folder = cluster.folder / "orion"
        self.configuration = self.folder / "nodes.yaml"
        self._said = dict(configuration or {})
        self._processes: dict[str, Process] = {}

    def __enter__(self) -> "Orion":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, what: BaseException | None, where: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def access(self) -> Access:
        """The way into the cluster."""
        return self.cluster.access

    def start(self) -> None:
        """Install it, and return when every node offers slots and has the image of the examples.

        Raises:
            Failed: a process ended, or was not ready in time.
        """
        self.folder.mkdir()
        self.configure(self._said)
        self._kubectl("create", "namespace", NAMESPACE)
        self._kubectl("apply", "--server-side", "-f", str(CHART / "files" / "crds"))
        self._kubectl("wait", "--for=condition=Established", "--timeout=60s", "-f", str(CHART / "files" / "crds"))
        for component, file in ROLES.items():
            self._give_rights(component, CHART / "files" / file)
        for name in OBJECTS:
            self._kubectl("apply", "--server-side", "-f", str(CHART / "files" / name))
        self._start_operator()
        self._start_webhook()
        example = example_image.example().write(self.folder / "example.tar")
        for node in self.cluster.nodes.values():
            node.import_image(example)
            self.start_on(node)
        for node in self.cluster.nodes.values():
            self.wait_until_advertised(node)

    def configure(self, said: Mapping[str, Any]) -> None:
        """Say how nodes offer their GPUs; agents and plugins take it in by themselves."""
        fresh = self.configuration.with_suffix(".new")
        fresh.write_text(yaml.safe_dump({"version": "v1", **said}))
        fresh.replace(self.configuration)

    def start_on(self, node: Node) -> None:
        """Start all that runs on a node that has just been powered on; those of before are gone with it."""
        self.begin_mps_daemon(node)
        self.begin_agent(node)
        self.begin_plugin(node)

    def begin_agent(self, node: Node) -> None:
        """Start the agent of a node."""
        kubeconfig = self._bound_to(node)
        command = ["agent", "--gpus", "simulated", "--node-name", node.name, "--kubeconfig", str(kubeconfig)]
        command += ["--configuration", str(self.configuration), "--metrics-address", f"{node.address}:{AGENT_PORT}"]
        self._begin(f"{node.name}-agent", command, node)

    def begin_mps_daemon(self, node: Node) -> None:
        """Start the MPS daemon of a node; it idles until a GPUDevice says `mode: mps`."""
        self._begin(f"{node.name}-mps", ["mps-daemon"], node)

    def begin_plugin(self, node: Node, name: str = "plugin") -> None:
        """Start a device plugin of a node; under another name a second one beside the first."""
        command = ["device-plugin", "--node-name", node.name, "--configuration", str(self.configuration)]
        command += ["--metrics-address", f"{node.address}:{PLUGIN_PORT}" if name == "plugin" else ""]
        self._begin(f"{node.name}-{name}", command, node)

    def end(self, node: Node, component: str, patience: float = 20) -> None:
        """End `agent`, `plugin` or `mps` of a node: asked politely for `patience` seconds, then killed."""
        self._processes.pop(f"{node.name}-{component}").stop(patience)

    def end_on(self, node: Node, patience: float = 20) -> None:
        """End all that runs on a node, for `start_on` to begin it again."""
        for component in COMPONENTS:
            if f"{node.name}-{component}" in self._processes:
                self.end(node, component, patience)

    def log(self, name: str) -> str:
        """Return what a process has said: `operator`, `webhook`, `NODE-agent`, `NODE-plugin`, `NODE-mps`."""
        return self._log(name).read_text(errors="replace")

    def _log(self, name: str) -> Path:
        """Where a process writes: beside the logs of the cluster, which stay when something has failed."""
        return self.cluster.folder / "logs" / f"orion-{name}.log"

    def runs(self, node: Node, component: str) -> bool:
        """Return whether `agent` or `plugin` of a node runs now; one that has crashed does not."""
        process = self._processes.get(f"{node.name}-{component}")
        return process is not None and process.runs

    def pids(self) -> dict[str, int]:
        """Return the process ids of all that is to run."""
        return {f"orion/{name}": process.pid for name, process in self._processes.items() if process.pid}

    def fault(self) -> str:
        """Return how the first process that ended by itself did so, or an empty text."""
        return next((fault for process in self._processes.values() if (fault := process.ended())), "")

    def stop(self) -> None:
        """End all its processes; what it made in the cluster stays."""
        for process in self._processes.values():
            process.stop(5)
        self._processes.clear()

    def wait_until_advertised(self, node: Node) -> None:
        """Return when the node offers slots of both kinds.

        Raises:
            Failed: it does not in time, or a process ended.
        """
        self._wait(f"{node.name} advertised no slots", lambda: all(self.allocatable(node).values()))

    def allocatable(self, node: Node) -> dict[str, int]:
        """Return how many slots pods may have on a node."""
        found = self.access.read(f"/api/v1/nodes/{node.name}") or {}
        amounts = found.get("status", {}).get("allocatable", {})
        return {name: int(amounts.get(name, 0)) for name in RESOURCES}

    def _start_operator(self) -> None:
        address = self.cluster.control_plane.address
        command = ["operator", "--kubeconfig", str(self._identity("operator")), "--lease-namespace", NAMESPACE]
        self._begin("operator", [*command, "--address", f"{address}:{OPERATOR_PORT}"])

    def _start_webhook(self) -> None:
        address, keys = self.cluster.control_plane.address, self.folder / "webhook"
        self.access.authority.server("orion-webhook", [address]).write(keys, "tls")
        command = ["webhook", "--kubeconfig", str(self._identity("webhook")), "--certificates", str(keys)]
        command += ["--listen", f"{address}:{WEBHOOK_PORT}", "--health", f"{address}:{HEALTH_PORT}"]
        self._begin("webhook", command)
        self._wait("the webhook did not begin to serve", lambda: "reviews on port" in self.log("webhook"))
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

    def _bound_to(self, node: Node) -> Path:
        """Write the kubeconfig of a node's agent: a token that names the node, as that of a pod there does."""
        asked = ["--bound-object-kind", "Node", "--bound-object-name", node.name]
        asked += ["--duration", "8760h"]  # as long as the cluster's certificates; nobody renews it
        token = self._kubectl("create", "token", "orion-agent", "--namespace", NAMESPACE, *asked).strip()
        document = json.loads(self._identity("agent").read_text())
        document["users"][0]["user"] = {"token": token}
        path = self.folder / f"{node.name}-agent.kubeconfig"
        path.touch(mode=0o600)
        path.write_text(json.dumps(document))
        return path

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

    def _kubectl(self, *arguments: str, given: str = "") -> str:
        program = self.cluster.programs["kubectl"]
        command = [str(program), "--kubeconfig", str(self.access.kubeconfig), *arguments]
        done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=90)
        if done.returncode != 0:
            raise Failed(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def _wait(self, otherwise: str, condition: Callable[[], bool]) -> None:
        wait_until(condition, otherwise, self.fault, f"logs are in {self.cluster.folder / 'logs'}")
