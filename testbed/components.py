"""The command lines of the control plane's components.

They differ from a production cluster in three ways. Every component listens on 127.0.0.1 alone, except the API server
of a cluster with nodes. There is no leader election, since each component runs once. etcd does not sync to disk, since
no data outlives the run.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from testbed.access import ADMINISTRATORS, Access
from testbed.authority import Authority, Issued, key_pem, new_key, public_pem
from testbed.place import LOOPBACK

SERVICE_RANGE = "10.96.0.0/16"
COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
# Without nodes of our own, no kubelet renews the leases of Node objects; the controllers must not treat that as a
# failure.
NODES_WITHOUT_KUBELET = {"node-monitor-grace-period": "8760h", "node-startup-grace-period": "8760h"}


@dataclass(frozen=True)
class Ports:
    """Where one control plane listens: the API server's address, and the ports reserved at that address."""

    address: str
    api_server: int
    etcd: int
    etcd_peers: int


def prepare(folder: Path, ports: Ports) -> Access:
    """Make keys, certificates and kubeconfigs for all components under `folder`; return the access."""
    access = Access.create(folder, f"https://{ports.address}:{ports.api_server}")
    keys = folder / "keys"
    names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost", LOOPBACK, "10.96.0.1"]
    access.authority.server("kube-apiserver", [*names, ports.address]).write(keys, "kube-apiserver")
    access.authority.client("kube-apiserver", [ADMINISTRATORS]).write(keys, "kubelet-client")
    for component in ("kube-controller-manager", "kube-scheduler"):
        access.kubeconfig_for(f"system:{component}", [], folder / f"{component}.kubeconfig")
    # etcd has its own authority, so that a certificate for the API server does not allow reading etcd past RBAC.
    (folder / "etcd-authority").mkdir()
    private = Authority(folder / "etcd-authority", "orion-test-etcd-authority")
    private.server("etcd", [LOOPBACK]).write(keys, "etcd")
    private.client("kube-apiserver").write(keys, "etcd-client")
    signing = new_key()
    Issued(public_pem(signing), key_pem(signing)).write(keys, "service-accounts")
    return access


def command_lines(folder: Path, ports: Ports, programs: Mapping[str, Path]) -> dict[str, list[str]]:
    """Return each component's command line, in the order in which they start."""
    keys, authority = folder / "keys", folder / "authority"
    options = {
        "etcd": _etcd(folder, ports),
        "kube-apiserver": _api_server(folder, ports),
        "kube-controller-manager": {
            "kubeconfig": folder / "kube-controller-manager.kubeconfig",
            "service-account-private-key-file": keys / "service-accounts.key",
            "root-ca-file": authority / "ca.crt",
            "cluster-signing-cert-file": authority / "ca.crt",
            "cluster-signing-key-file": authority / "ca.key",
            "use-service-account-credentials": "true",  # each controller has its own RBAC rules, as in production
            "leader-elect": "false",
            "secure-port": 0,
            "flex-volume-plugin-dir": folder / "volume-plugins",  # the component creates it; the default is under /usr
            **(NODES_WITHOUT_KUBELET if ports.address == LOOPBACK else {}),
            "kube-api-qps": 200,  # tests create a thousand pods within seconds
            "kube-api-burst": 400,
        },
        "kube-scheduler": {
            "kubeconfig": folder / "kube-scheduler.kubeconfig",
            "leader-elect": "false",
            "secure-port": 0,
        },
    }
    return {
        name: [str(programs[name]), *(f"--{option}={value}" for option, value in options[name].items())]
        for name in COMPONENTS
    }


def _etcd(folder: Path, ports: Ports) -> dict[str, object]:
    clients, peers = f"https://{LOOPBACK}:{ports.etcd}", f"http://{LOOPBACK}:{ports.etcd_peers}"
    keys = folder / "keys"
    return {
        "name": "orion",
        "data-dir": folder / "etcd",
        "listen-client-urls": clients,
        "advertise-client-urls": clients,
        "listen-peer-urls": peers,
        "initial-advertise-peer-urls": peers,
        "initial-cluster": f"orion={peers}",
        "cert-file": keys / "etcd.crt",
        "key-file": keys / "etcd.key",
        "client-cert-auth": "true",
        "trusted-ca-file": folder / "etcd-authority" / "ca.crt",
        "socket-reuse-port": "true",  # we hold the port until etcd has it: see Held in control_plane.py
        "unsafe-no-fsync": "true",
        "log-level": "warn",
    }


def _api_server(folder: Path, ports: Ports) -> dict[str, object]:
    keys = folder / "keys"
    return {
        "bind-address": ports.address,
        "advertise-address": ports.address,
        "secure-port": ports.api_server,
        "permit-port-sharing": "true",
        # The API server rejects a loopback address as an endpoint.
        "endpoint-reconciler-type": "none" if ports.address == LOOPBACK else "lease",
        "etcd-servers": f"https://{LOOPBACK}:{ports.etcd}",
        "etcd-cafile": folder / "etcd-authority" / "ca.crt",
        "etcd-certfile": keys / "etcd-client.crt",
        "etcd-keyfile": keys / "etcd-client.key",
        "client-ca-file": folder / "authority" / "ca.crt",
        "tls-cert-file": keys / "kube-apiserver.crt",
        "tls-private-key-file": keys / "kube-apiserver.key",
        "authorization-mode": "Node,RBAC",
        # With PodNodeSelector a namespace's annotation names the nodes for its pods, so tests can share a scheduler.
        "enable-admission-plugins": "NodeRestriction,PodNodeSelector",
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-account-key-file": keys / "service-accounts.crt",
        "service-account-signing-key-file": keys / "service-accounts.key",
        "service-cluster-ip-range": SERVICE_RANGE,
        "allow-privileged": "true",  # so that our admission rejects such pods, not the API server
        # The API server calls webhooks' pods directly, because no kube-proxy runs in its network.
        "enable-aggregator-routing": "true",
        "kubelet-client-certificate": keys / "kubelet-client.crt",
        "kubelet-client-key": keys / "kubelet-client.key",
        "kubelet-preferred-address-types": "InternalIP",  # no DNS resolves nodes' names
    }
