"""What would let a pod around its slots or around the hook; each is refused with a sentence.

This keeps honest pods from losing their share by accident, and closes the doors that a pod's own text can open. It is
no sandbox: what a program does inside its container (`env -i`, a static binary) is noticed on the node instead.

Refused: looking into ConfigMaps and Secrets of envFrom. Reading every tenant's Secrets is a right that a webhook should
not have, and they can change after admission; `preloading` pins what matters.
"""

import posixpath
from collections.abc import Iterable, Set

from orion.operator.webhook.decisions import Reason, Refusal
from orion.operator.webhook.defaults import Defaults
from orion.operator.webhook.pods import Place, Pod, places
from orion.operator.webhook.preloading import pins

DEVICE_VARIABLES = (
    "NVIDIA_VISIBLE_DEVICES",  # NVIDIA's container runtime hands over every GPU that this names
    "NVIDIA_MIG_CONFIG_DEVICES",
    "NVIDIA_MIG_MONITOR_DEVICES",
    "NVIDIA_IMEX_CHANNELS",
    "CUDA_MPS_PIPE_DIRECTORY",  # another MPS server, or none
)
NO_DEVICES = ("", "void", "none")
""" Values that give a container nothing; one without slots may have them. """

_DEVICES = "devices of the node"
_RUNTIME = "the container runtime, which can start anything"
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
    "/var/lib/orion": "the hook that every pod with slots loads",
    "/var/lib/kubelet": _KUBELET,  # its device plugins' sockets, wherever its --root-dir is
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
""" Paths of the node that a tenant may not mount, nor what is above or below them. """

_PREFIXES = ("/dev/nvidia",)
""" Those of the above that stand for every name that begins so, such as /dev/nvidia0. """


def refuse_hazards(pod: Pod, slots: Set[str], defaults: Defaults) -> None:
    """Refuse a pod that could reach a GPU around its slots, or whose containers would lose the hook.

    Args:
        pod: the pod.
        slots: names of the containers that get slots.
        defaults: where Orion's mounts are.

    Raises:
        Refusal: it could.
    """
    if pod.spec.host_pid:
        raise Refusal(
            Reason.HOST_PROCESSES, "hostPID lets the pod reach into processes of other tenants; remove it from its spec"
        )
    for volume in pod.spec.volumes or ():
        if volume.host_path is not None:
            _refuse_path(volume.name, volume.host_path.path, defaults)
    refuse_containers(places(pod.spec), slots, defaults)


def refuse_containers(found: Iterable[Place], slots: Set[str], defaults: Defaults) -> None:
    """Refuse what single containers could do; the same for those that come later (ephemeral ones).

    Raises:
        Refusal: one of them could.
    """
    for place in found:
        security = place.container.security_context
        if security and security.privileged:
            raise Refusal(
                Reason.PRIVILEGED,
                f"{place} is privileged, so it could use every GPU of its node; remove securityContext.privileged",
            )
        _refuse_environment(place, place.name in slots, defaults)
        if place.name in slots:
            _refuse_mounts(place, defaults)


def _refuse_environment(place: Place, has_slots: bool, defaults: Defaults) -> None:
    pinned = pins(defaults)
    for variable in place.container.env or ():
        harmless = not has_slots and variable.literal in NO_DEVICES
        if variable.name in DEVICE_VARIABLES and not harmless:
            raise Refusal(
                Reason.DEVICE_ENVIRONMENT,
                f"{place} sets {variable.name} in its env: which GPU a container gets is decided when it gets its "
                "slots; remove the variable",
            )
        if has_slots and variable.name in pinned and variable.literal != pinned[variable.name]:
            raise Refusal(
                Reason.HOOK_ENVIRONMENT,
                f"{place} sets {variable.name} in its env, which would lead around the hook; remove the variable",
            )


def _refuse_mounts(place: Place, defaults: Defaults) -> None:
    for mount in place.container.volume_mounts or ():
        if _is_within(_normal(mount.mount_path), _normal(defaults.root)):
            raise Refusal(
                Reason.HIDDEN_MOUNT,
                f"{place} mounts volume {mount.name} at {mount.mount_path}, where its slots are; choose a path outside "
                f"{defaults.root}",
            )


def _refuse_path(volume: str, text: str, defaults: Defaults) -> None:
    path = _normal(text)
    ours = {defaults.root: "the slots of all pods", _normal(defaults.kubelet_root): _KUBELET}
    for forbidden, what in {**ours, **FORBIDDEN_PATHS}.items():
        if _is_within(path, forbidden) or _is_within(forbidden, path) or _begins(path, forbidden):
            raise Refusal(
                Reason.HOST_PATH,
                f"volume {volume} is the node's {text}, which gives access to {what}; a pod with a share of a GPU may "
                "not mount it",
            )


def _begins(path: str, forbidden: str) -> bool:
    return forbidden in _PREFIXES and path.startswith(forbidden)


def _normal(path: str) -> str:
    """Return a path without detours; /var/run is /run wherever containers run."""
    whole = posixpath.normpath(f"/{path.lstrip('/')}")
    return whole.removeprefix("/var") if _is_within(whole, "/var/run") else whole


def _is_within(path: str, folder: str) -> bool:
    return folder == "/" or path == folder or path.startswith(f"{folder}/")
