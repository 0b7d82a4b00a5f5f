"""Controllers of other projects whose pods share GPUs: built from the Go modules of go/neighbours, run beside Orion.

One module pins all of them, so that they share most of what is compiled. It replaces Kubernetes' libraries by those of
one version, because Argo Rollouts needs that. A controller's manifests are in its module too: its own kustomization
renders them, and only its Deployment is left out, since the controller runs as a process of this machine, with exactly
the rights of its service account. Its webhooks have no Service, so the API server gets their address.
"""

import base64
import functools
import http
import json
import os
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from testbed import binaries, go_modules
from testbed.binaries import MODULES, Binary, Say
from testbed.cluster import Cluster
from testbed.errors import Failed, Missing
from testbed.process import Process, Processes

Manifest = dict[str, Any]
_LEFT_OUT = {"APIService", "Deployment", "Secret", "Service"}
_IN_NAMESPACES = {"ConfigMap", "Role", "RoleBinding", "ServiceAccount"}
_CERTIFICATES = "k8s-webhook-server/serving-certs"
""" Below the folder for temporary files: where controller-runtime looks for a webhook's certificate. """


@dataclass(frozen=True)
class Controller:
    """One controller: its program, the folder of its kustomization in the module, and how it is started.

    Options and settings may contain {port}, {health} and {metrics}, which become ports of the controller's own.
    """

    binary: Binary
    kustomization: str
    namespace: str
    """ Of its service account, where the kustomization names none. """
    ports: int
    """ The first of three. """
    options: tuple[str, ...] = ()
    settings: Mapping[str, Any] | None = None
    """ Changes of its configuration file; None: it has none. """
    environment: Mapping[str, str] | None = None
    certificates: str = ""
    """ A folder below /etc in which it looks for its metrics' certificate; empty: none. """

    @property
    def name(self) -> str:
        """The program's name."""
        return self.binary.name

    @property
    def rendered(self) -> Path:
        """The path of its manifests in the cache."""
        return self.binary.cached().with_suffix(".yaml")


def _binary(name: str, module: str, folder: str = "") -> Binary:
    return Binary(name, "neighbours", module, f"{module}/{folder}".rstrip("/"))


_SETTINGS: Mapping[str, Any] = {
    "health": {"healthProbeBindAddress": ":{health}"},
    "metrics": {"bindAddress": "0"},
    "leaderElection": {"leaderElect": False},
    "internalCertManagement": {"enable": False},
}
_FRAMEWORKS = ["batch/job", "pod", "deployment", "statefulset", "jobset.x-k8s.io/jobset"]
_FRAMEWORKS += ["leaderworkerset.x-k8s.io/leaderworkerset", "ray.io/raycluster"]
JOBSET = Controller(_binary("jobset", "sigs.k8s.io/jobset"), "config/default", "jobset-system", 10_000, (), _SETTINGS)
LEADER_WORKER_SET = Controller(
    _binary("lws", "sigs.k8s.io/lws", "cmd"), "config/default", "lws-system", 10_010, (), _SETTINGS
)
KUEUE = Controller(
    _binary("kueue", "sigs.k8s.io/kueue", "cmd/kueue"),
    "config/default",
    "kueue-system",
    10_020,
    ("--feature-gates=VisibilityOnDemand=false",),  # that server needs a pod's environment
    {**_SETTINGS, "integrations": {"frameworks": _FRAMEWORKS}},
    certificates="kueue/metrics/certs",
)
ARGO_ROLLOUTS = Controller(
    _binary("rollouts", "github.com/argoproj/argo-rollouts", "cmd/rollouts-controller"),
    "manifests/cluster-install",
    "argo-rollouts",
    10_030,
    ("--leader-elect=false", "--healthzPort={health}", "--metricsport={metrics}"),
)
KUBERAY = Controller(
    _binary("kuberay", "github.com/ray-project/kuberay/ray-operator"),
    "config/default",
    "default",
    10_040,
    ("--enable-leader-election=false", "--health-probe-bind-address=:{health}", "--metrics-addr=:{metrics}"),
    environment={"ENABLE_INIT_CONTAINER_INJECTION": "false"},  # it needs ray's image
)
CONTROLLERS = (JOBSET, LEADER_WORKER_SET, KUEUE, ARGO_ROLLOUTS, KUBERAY)


def build_missing(say: Say) -> None:
    """Build the controllers that the cache lacks, and render their manifests.

    Raises:
        Missing: there is no Go, or a build failed.
    """
    go_modules.build_missing(say, [each.binary for each in CONTROLLERS])
    for controller in CONTROLLERS:
        if not controller.rendered.is_file():
            _render(controller, say)


def _render(controller: Controller, say: Say) -> None:
    """Write a controller's manifests, as its own kustomization makes them."""
    kubectl = binaries.find_all(say)["kubectl"]
    with tempfile.TemporaryDirectory(prefix="orion-neighbours-") as scratch:
        environment = os.environ | {"GOTOOLCHAIN": "local", "GOMODCACHE": scratch, "GOFLAGS": "-modcacherw"}
        asked = [str(go_modules.find_go(Path(scratch), say)), "mod", "download", "-json", controller.binary.requires]
        done = subprocess.run(asked, cwd=MODULES / "neighbours", env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            raise Missing(f"{controller.name}: its module could not be downloaded: {done.stderr or done.stdout}")
        folder = Path(json.loads(done.stdout)["Dir"]) / controller.kustomization
        made = subprocess.run([kubectl, "kustomize", folder], capture_output=True, text=True)
        if made.returncode != 0:
            raise Missing(f"{controller.name}: `kubectl kustomize` failed: {made.stderr}")
    controller.rendered.write_text(made.stdout)


class Neighbours(Processes):
    """Controllers on a running cluster; their processes end with the cluster's."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster.folder / "logs")
        self._cluster, self._folder = cluster, cluster.folder / "neighbours"

    def start(self, *controllers: Controller) -> None:
        """Install controllers; return when they answer their health checks.

        Raises:
            Failed: a controller ended, or was not ready in time.
        """
        for controller in controllers:
            self._install(controller)
        for controller in controllers:
            self._wait(f"{controller.name} was not ready", functools.partial(self._is_ready, controller))

    def log(self, controller: Controller) -> str:
        """Return the log of a controller."""
        return self._log(controller).read_text(errors="replace")

    def stop(self) -> None:
        """End the controllers."""
        for process in self._processes.values():
            process.stop()

    @property
    def _address(self) -> str:
        return self._cluster.control_plane.address

    def _log(self, controller: Controller) -> Path:
        return self._logs / f"{controller.name}.log"

    def _is_ready(self, controller: Controller) -> bool:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            opener.open(f"http://{self._address}:{controller.ports + 1}/readyz", timeout=5).close()
        except urllib.error.HTTPError as error:
            return error.code == http.HTTPStatus.NOT_FOUND  # Argo Rollouts has only /healthz
        except OSError:
            return False
        return True

    def _install(self, controller: Controller) -> None:
        """Apply a controller's manifests and start it, with the identity that they give it."""
        folder = self._folder / controller.name
        (folder / _CERTIFICATES).mkdir(parents=True)
        self._cluster.access.authority.server(controller.name, [self._address]).write(folder / _CERTIFICATES, "tls")
        documents = [each for each in yaml.safe_load_all(controller.rendered.read_text()) if each]
        deployment = next(each for each in documents if each["kind"] == "Deployment")
        namespace = deployment["metadata"].get("namespace", controller.namespace)
        kept = [self._reached(each, controller) for each in documents if each["kind"] not in _LEFT_OUT]
        for each in (each for each in kept if each["kind"] in _IN_NAMESPACES):
            each["metadata"].setdefault("namespace", namespace)
        self._apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}])
        self._apply(kept)
        definitions = [each for each in kept if each["kind"] == "CustomResourceDefinition"]
        self._wait(f"the kinds of {controller.name} were not served", lambda: all(map(self._is_served, definitions)))
        account = deployment["spec"]["template"]["spec"]["serviceAccountName"]
        kubeconfig = self._cluster.access.kubeconfig_for(
            f"system:serviceaccount:{namespace}:{account}",
            ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"],
            folder / "kubeconfig",
            namespace,
        )
        options = [_filled(option, controller) for option in controller.options]
        options += self._configuration(controller, documents, folder)
        environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "TMPDIR": str(folder)}
        process = Process(
            controller.name,
            [*self._with_certificates(controller, folder), str(controller.binary.cached()), *options],
            self._log(controller),
            {**environment, **(controller.environment or {})},
        )
        self._processes[controller.name] = process
        with self._cluster.control_plane.place.entered():
            process.start()

    def _with_certificates(self, controller: Controller, folder: Path) -> list[str]:
        """Return a command prefix: the program sees an /etc that also has its certificates, and nobody else does."""
        if not controller.certificates:
            return []
        (folder / "work").mkdir()
        shutil.copytree(folder / _CERTIFICATES, folder / "etc" / controller.certificates)
        overlay = f"lowerdir=/etc,upperdir={folder}/etc,workdir={folder}/work"
        return ["unshare", "--mount", "sh", "-c", f'mount -t overlay -o {overlay} none /etc && exec "$@"', "sh"]

    def _configuration(self, controller: Controller, documents: Sequence[Manifest], folder: Path) -> list[str]:
        """Write the controller's configuration file, if it has one; return the option that names the file."""
        if controller.settings is None:
            return []
        config_map = next(each for each in documents if each["kind"] == "ConfigMap")
        settings = yaml.safe_load(config_map["data"]["controller_manager_config.yaml"])
        for name, value in json.loads(_filled(json.dumps(controller.settings), controller)).items():
            settings[name] = {**settings.get(name, {}), **value}
        settings["webhook"] = {"port": controller.ports, "certDir": str(folder / _CERTIFICATES)}
        path = folder / "configuration.yaml"
        path.write_text(yaml.safe_dump(settings))
        return [f"--config={path}"]

    def _reached(self, document: Manifest, controller: Controller) -> Manifest:
        """Replace the Services of the controller's webhooks by the address of its process."""
        hooks = [*document.get("webhooks", ()), document.get("spec", {}).get("conversion", {}).get("webhook", {})]
        for hook in (hook for hook in hooks if "clientConfig" in hook):
            path = hook["clientConfig"].pop("service")["path"]
            hook["clientConfig"]["url"] = f"https://{self._address}:{controller.ports}{path}"
            authority = base64.b64encode(self._cluster.access.authority.certificate)
            hook["clientConfig"]["caBundle"] = authority.decode()
        return document

    def _is_served(self, definition: Manifest) -> bool:
        """Return whether the API server lists all versions of a kind, so that clients find it."""
        spec = definition["spec"]
        for version in (version["name"] for version in spec["versions"] if version["served"]):
            listed = self._cluster.access.read(f"/apis/{spec['group']}/{version}") or {}
            if spec["names"]["plural"] not in (each["name"] for each in listed.get("resources", ())):
                return False
        return True

    def _apply(self, documents: Sequence[Manifest]) -> None:
        command = [str(self._cluster.programs["kubectl"]), "--kubeconfig", str(self._cluster.access.kubeconfig)]
        command += ["apply", "--server-side", "-f", "-"]
        given = yaml.safe_dump_all(documents)
        done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=300)
        if done.returncode != 0:
            raise Failed(f"{' '.join(command)}: {done.stderr.strip()}")


def _filled(text: str, controller: Controller) -> str:
    for offset, name in enumerate(("port", "health", "metrics")):
        text = text.replace(f"{{{name}}}", str(controller.ports + offset))
    return text
