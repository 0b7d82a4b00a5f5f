"""Rejects pods that could use a GPU without slots or without the hook.

The checks find mistakes in a pod's spec, and fields that bypass the slots or the hook on purpose. They are not a
sandbox: a program can still drop the hook inside its container (`env -i`, a static binary). The node agent reports such
a program.

Rejected: reading the ConfigMaps and Secrets of envFrom. A webhook should not have the right to read the Secrets of all
tenants, and ConfigMaps and Secrets can change after admission. `preloading` sets the important variables instead.
"""

import posixpath
from collections.abc import Iterable, Set

from orion.operator.webhook.decisions import Reason, Refusal
from orion.operator.webhook.defaults import Defaults
from orion.operator.webhook.pods import Pod, PodContainer, containers_of
from orion.operator.webhook.preloading import pins

DEVICE_VARIABLES = (
    "NVIDIA_VISIBLE_DEVICES",  # NVIDIA's container runtime injects every GPU that this variable names
    "NVIDIA_MIG_CONFIG_DEVICES",
    "NVIDIA_MIG_MONITOR_DEVICES",
    "NVIDIA_IMEX_CHANNELS",
    "CUDA_MPS_PIPE_DIRECTORY",  # selects another MPS server, or none
)
NO_DEVICES = ("", "void", "none")
""" Values that give a container no GPU. A container without slots may set DEVICE_VARIABLES to them. """

_DEVICES = "devices of the node"
_RUNTIME = "the container runtime, which can start anything"
_DEVICE_FILES = "the container runtime's device files, which name programs that it runs as root"
_FILES = "the files of other containers"
_KUBELET = "the kubelet's sockets and the volumes of other pods"
_DISTRIBUTION = "the kubelet and the container runtime of the node"
FORBIDDEN_PATHS = {
    "/dev/nvidia": _DEVICES,
    "/dev/dri": _DEVICES,
    "/dev/char": _DEVICES,
    "/dev/mem": _DEVICES,
    "/proc": "processes of the node",
    "/sys/fs/cgroup": "the rights of containers to devices",
    "/run/nvidia": "the driver and its MPS servers",
    "/etc/cdi": _DEVICE_FILES,
    "/run/cdi": _DEVICE_FILES,
    "/var/lib/orion": "the hook that every pod with slots loads",
    "/var/lib/kubelet": _KUBELET,  # the device plugins' sockets are here whatever the kubelet's --root-dir is
    "/etc/kubernetes": "the kubelet's own pods",
    "/run/containerd": _RUNTIME,
    "/run/crio": _RUNTIME,
    "/run/podman": _RUNTIME,
    "/run/k3s": _RUNTIME,
    "/run/k0s": _RUNTIME,
    "/var/lib/containerd": _FILES,
    "/var/lib/containers": _FILES,
    "/var/lib/docker": _FILES,
    "/var/lib/rancher": _DISTRIBUTION,
    "/var/lib/k0s": _DISTRIBUTION,
    "/var/snap/microk8s": _DISTRIBUTION,
    "/run/docker.sock": _RUNTIME,
    "/run/cri-dockerd.sock": _RUNTIME,
}
""" Paths of the node that a tenant may not mount, with the reason. A tenant may not mount the
parents of these paths either, nor anything below these paths. """

_GPU_MOUNTS = "/run/nvidia-container-devices"
""" A volume that is mounted below names a GPU to NVIDIA's container runtime, as NVIDIA_VISIBLE_DEVICES does. """

_LOADER_LIST = "/etc/ld.so.preload"
""" Where the container runtime mounts the list with the hook, with injection through a file. """

_PREFIXES = ("/dev/nvidia",)
""" Forbidden paths that also forbid longer names: /dev/nvidia forbids /dev/nvidia0. """


def refuse_hazards(pod: Pod, slots: Set[str], defaults: Defaults) -> None:
    """Reject a pod that could use a GPU without slots or without the hook.

    Args:
        pod: the pod.
        slots: the names of the containers that get slots.
        defaults: the paths of Orion's mounts and of the kubelet.

    Raises:
        Refusal: the pod is rejected.
    """
    if pod.spec.host_pid:
        raise Refusal(
            Reason.HOST_PROCESSES,
            "hostPID lets the pod reach processes of other tenants; remove it from the pod's spec",
        )
    for volume in pod.spec.volumes or ():
        if volume.host_path is not None:
            _refuse_path(volume.name, volume.host_path.path, defaults)
    refuse_containers(containers_of(pod.spec), slots, defaults)


def refuse_containers(found: Iterable[PodContainer], slots: Set[str], defaults: Defaults) -> None:
    """Reject containers that could use a GPU without slots or without the hook; also used for ephemeral containers.

    Raises:
        Refusal: one of the containers is rejected.
    """
    for entry in found:
        security = entry.container.security_context
        if security and security.privileged:
            raise Refusal(
                Reason.PRIVILEGED,
                f"{entry} is privileged, so it could use every GPU of its node; remove securityContext.privileged",
            )
        _refuse_environment(entry, entry.name in slots, defaults)
        for mount in entry.container.volume_mounts or ():
            _refuse_mount(entry, mount.name, mount.mount_path, entry.name in slots, defaults)


def _refuse_environment(entry: PodContainer, has_slots: bool, defaults: Defaults) -> None:
    pinned = pins(defaults)
    for variable in entry.container.env or ():
        harmless = not has_slots and variable.literal in NO_DEVICES
        if variable.name in DEVICE_VARIABLES and not harmless:
            raise Refusal(
                Reason.DEVICE_ENVIRONMENT,
                f"{entry} sets {variable.name} in its env, but its slots decide which GPU a container gets; remove the "
                "variable",
            )
        if has_slots and variable.name in pinned and variable.literal != pinned[variable.name]:
            raise Refusal(
                Reason.HOOK_ENVIRONMENT,
                f"{entry} sets {variable.name} in its env, which could bypass the hook; remove the variable",
            )


def _refuse_mount(entry: PodContainer, volume: str, path: str, has_slots: bool, defaults: Defaults) -> None:
    at, begin = _normal(path), f"{entry} mounts volume {volume} at {path}"
    if _is_within(at, _GPU_MOUNTS):
        raise Refusal(
            Reason.DEVICE_MOUNT,
            f"{begin}, by which NVIDIA's container runtime takes GPUs, but slots decide which GPU a container gets; "
            "remove the mount",
        )
    if has_slots and _is_within(at, _normal(defaults.root)):
        raise Refusal(Reason.HIDDEN_MOUNT, f"{begin}, where its slots are; choose a path outside {defaults.root}")
    if has_slots and at == _LOADER_LIST:
        raise Refusal(Reason.HIDDEN_MOUNT, f"{begin}, which could hide the hook; remove the mount")


def _refuse_path(volume: str, text: str, defaults: Defaults) -> None:
    path = _normal(text)
    ours = {defaults.root: "the slots of all pods", _normal(defaults.kubelet_root): _KUBELET}
    for forbidden, what in {**ours, **FORBIDDEN_PATHS}.items():
        if _is_within(path, forbidden) or _is_within(forbidden, path) or _begins(path, forbidden):
            raise Refusal(
                Reason.HOST_PATH,
                f"volume {volume} is the node's {text}, which gives access to {what}; a pod that shares a GPU may not "
                "mount it: remove the volume",
            )


def _begins(path: str, forbidden: str) -> bool:
    return forbidden in _PREFIXES and path.startswith(forbidden)


def _normal(path: str) -> str:
    """Return a path without `.` and `..`, and with /run for /var/run, because /var/run is a link to /run."""
    whole = posixpath.normpath(f"/{path.lstrip('/')}")
    return whole.removeprefix("/var") if _is_within(whole, "/var/run") else whole


def _is_within(path: str, folder: str) -> bool:
    return folder == "/" or path == folder or path.startswith(f"{folder}/")
