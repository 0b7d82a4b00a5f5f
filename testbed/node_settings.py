"""The files and command lines of a node's programs: containerd, its CNI plugins, kubelet and kube-proxy.

All paths are as the node sees them. A node differs from production in these ways: cgroups are managed through the file
system, as there is no systemd; no pod is evicted and no image is garbage-collected, as the disk is the machine's; no
process is protected from the kernel's OOM killer, which would need CAP_SYS_RESOURCE; pauses between retries are
shorter.
"""

import ipaddress
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from testbed.access import Access
from testbed.images import PAUSE
from testbed.packages import Runtime

CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
CDI_FOLDER = "/run/cdi"
""" The other usual folder, /etc/cdi, is the machine's on a node. """
KUBELET_FOLDER = "/var/lib/kubelet"
POD_NETWORK = "pods"
COMPONENTS = ("containerd", "kubelet", "kube-proxy")


@dataclass(frozen=True)
class Settings:
    """The settings that differ between nodes."""

    name: str
    address: str
    pods: ipaddress.IPv4Network
    all_pods: ipaddress.IPv4Network
    cgroup: str
    labels: Mapping[str, str]


def command_lines(
    settings: Settings, folder: Path, access: Access, runtime: Runtime, programs: Mapping[str, Path]
) -> dict[str, list[str]]:
    """Write the files into `folder`; return each component's command line, in the order in which they start."""
    folder.mkdir(exist_ok=True)
    labels = ",".join(f"{name}={value}" for name, value in settings.labels.items())
    kubeconfig = folder / "kubelet.kubeconfig"
    access.kubeconfig_for(f"system:node:{settings.name}", ["system:nodes"], kubeconfig)
    access.kubeconfig_for("system:kube-proxy", [], folder / "kube-proxy.kubeconfig")
    _write(folder / "cni" / "10-pods.conflist", _cni(settings))
    (folder / "containerd.toml").write_text(_containerd(folder / "cni", runtime))
    _write(folder / "kubelet.json", _kubelet(settings, access))
    _write(folder / "kube-proxy.json", _kube_proxy(settings, folder / "kube-proxy.kubeconfig"))
    return {
        "containerd": [str(programs["containerd"]), f"--config={folder / 'containerd.toml'}"],
        "kubelet": [
            str(programs["kubelet"]),
            f"--config={folder / 'kubelet.json'}",
            f"--kubeconfig={kubeconfig}",
            f"--hostname-override={settings.name}",
            f"--node-ip={settings.address}",
            f"--cert-dir={KUBELET_FOLDER}/pki",
            *([f"--node-labels={labels}"] if labels else []),
            "--v=2",
        ],
        "kube-proxy": [str(programs["kube-proxy"]), f"--config={folder / 'kube-proxy.json'}"],
    }


def _write(path: Path, document: Mapping[str, object]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(document, indent=1))  # JSON is YAML


def _cni(settings: Settings) -> dict[str, object]:
    """Connect each pod by its own veth pair, with routes. A bridge was rejected: without a kernel module, answers of
    Services would cross it without passing the node's packet filters.
    """  # noqa: D205
    ranges = {"type": "host-local", "ranges": [[{"subnet": str(settings.pods)}]], "routes": [{"dst": "0.0.0.0/0"}]}
    cable = {"type": "ptp", "ipMasq": False, "ipam": {**ranges, "dataDir": "/run/orion-pod-addresses"}}
    return {"cniVersion": "0.4.0", "name": POD_NETWORK, "plugins": [cable]}


def _containerd(cni: Path, runtime: Runtime) -> str:
    # JSON strings are valid TOML strings. The two disabled plugins make folders and look for devices on the machine.
    return f"""\
version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.devmapper"]

[grpc]
address = {json.dumps(CONTAINERD_SOCKET)}

[plugins."io.containerd.cri.v1.images"]
snapshotter = "overlayfs"

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = {json.dumps(PAUSE)}

[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true
disable_apparmor = true
cdi_spec_dirs = {json.dumps([CDI_FOLDER])}

[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = {json.dumps([str(runtime.cni)])}
conf_dir = {json.dumps(str(cni))}

[plugins."io.containerd.cri.v1.runtime".containerd]
default_runtime_name = "runc"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
SystemdCgroup = false
BinaryName = {json.dumps(runtime.program("runc"))}
"""


def _kubelet(settings: Settings, access: Access) -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": settings.cgroup,
        "cgroupsPerQOS": True,  # without it, the first in-place resize of a pod crashes the kubelet
        "failCgroupV1": False,
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "oomScoreAdj": 0,
        "maxOpenFiles": 20000,
        "maxPods": 200,
        "localStorageCapacityIsolation": False,
        "makeIPTablesUtilChains": False,
        "resolvConf": "",
        "evictionHard": {"memory.available": "0%", "nodefs.available": "0%", "imagefs.available": "0%"},
        "imageGCHighThresholdPercent": 100,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(access.authority.certificate_path)},
        },
        "authorization": {"mode": "Webhook"},
        "volumePluginDir": f"{KUBELET_FOLDER}/volume-plugins",  # the default is a folder under /usr
        "staticPodPath": f"{KUBELET_FOLDER}/static-pods",
        "fileCheckFrequency": "1s",  # static pods
        "shutdownGracePeriod": "0s",
        "serializeImagePulls": False,
        "kubeAPIQPS": 200,
        "kubeAPIBurst": 400,
        "eventRecordQPS": 0,
        "syncFrequency": "10s",
        "nodeStatusUpdateFrequency": "2s",
        "featureGates": {"ResourceHealthStatus": True, "KubeletCrashLoopBackOffMax": True},
        "crashLoopBackOff": {"maxContainerRestartPeriod": "1s"},  # tests with failing containers need not wait
    }


def _kube_proxy(settings: Settings, kubeconfig: Path) -> dict[str, object]:
    unlimited = {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"}
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "hostnameOverride": settings.name,
        "mode": "iptables",
        "clusterCIDR": str(settings.all_pods),
        "conntrack": unlimited,  # leave the machine's settings unchanged
        "oomScoreAdj": 0,
        "iptables": {"minSyncPeriod": "0s", "syncPeriod": "30s"},
    }
