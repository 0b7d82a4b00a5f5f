"""What the experiments create: pods that use GPUs by claims, their templates and GPUShares."""

from typing import Any

from testbed import images

CLAIM = "gpu"
""" What a pod calls a claim that was written by hand. Orion's webhook calls it otherwise. """

Manifest = dict[str, Any]


def template(name: str, role: str, **amounts: str) -> Manifest:
    """Return a template of claims for one GPU."""
    slots = {"hpSlots": "0", "beSlots": "0", f"{role}Slots": "1"}
    exactly = {"deviceClassName": f"orion-{role}", "capacity": {"requests": {**slots, **amounts}}}
    spec = {"spec": {"devices": {"requests": [{"name": "c0", "exactly": exactly}]}}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": spec,
    }


def share(name: str, role: str, **spec: Any) -> Manifest:
    """Return a GPUShare for the pods with the label `share: NAME`."""
    selector = {"matchLabels": {"share": name}}
    return {
        "apiVersion": "orion.gpu/v1alpha1",
        "kind": "GPUShare",
        "metadata": {"name": name},
        "spec": {"priority": role, "selector": selector, **spec},
    }


def shell(name: str, script: str = "sleep 100000") -> Manifest:
    """Return a pod of a shell that says `started`, runs a script, and ends at once on SIGTERM."""
    command = ["sh", "-c", f"trap 'exit 0' TERM; echo started; {{ {script}; }} & wait $!"]
    container = {"name": "main", "image": images.SHELL, "command": command, "imagePullPolicy": "Never"}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 5}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def by_hand(pod: Manifest, template_name: str) -> Manifest:
    """Let a pod use a claim of a template that was written by hand."""
    pod["spec"]["resourceClaims"] = [{"name": CLAIM, "resourceClaimTemplateName": template_name}]
    pod["spec"]["containers"][0]["resources"] = {"claims": [{"name": CLAIM, "request": "c0"}]}
    return pod


def as_usual(pod: Manifest, role: str, share_name: str, gpus: int = 1) -> Manifest:
    """Let a pod ask for GPUs as with a device plugin, under a share; the webhook makes its claim."""
    pod["metadata"] |= {"annotations": {"orion/priority": role}, "labels": {"share": share_name}}
    pod["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
    return pod
