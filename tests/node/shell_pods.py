"""Pods of busybox's shell, for tests of the node tier."""

from typing import Any

from testbed import images


def shell_pod(name: str, script: str, container: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """A pod that runs a script. It ends at once on SIGTERM, although its shell is process 1."""
    ending_at_once = f"trap 'exit 0' TERM\n{{ {script}\n}} &\nwait $!"
    main = {"name": "main", "image": images.SHELL, "command": ["sh", "-c", ending_at_once], **(container or {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"containers": [main], **spec},
    }


def service(name: str) -> dict[str, Any]:
    """A Service of the pods of that name, on port 80."""
    spec = {"selector": {"app": name}, "ports": [{"port": 80}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}
