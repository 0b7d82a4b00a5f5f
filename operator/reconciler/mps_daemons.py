"""Replaces a pod of the MPS daemons if the pod never started and its DaemonSet has changed since.

The DaemonSet has the update strategy OnDelete, because all clients of a GPU end with its MPS daemon. So Kubernetes does
not replace a pod that waits for a missing image, even after the image's name was corrected. Such a pod has no clients.
The operator deletes it, and the DaemonSet's controller creates a pod from the corrected template.

Rejected: RollingUpdate, also with maxSurge. It deletes each outdated pod that is not ready. A pod is not ready if its
node has not answered for a minute. The deletion would then end the pod's MPS daemon and all clients of this daemon.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from prometheus_client import CollectorRegistry

from orion.api_server.requests import ApiError, ApiServer

_HASH = "controller-revision-hash"
_LOOK_EVERY_S = 15.0
_LOG = logging.getLogger(__name__)

Body = Mapping[str, Any]


def part(
    namespace: str, daemon_set: str, look_every_s: float = _LOOK_EVERY_S
) -> Callable[[ApiServer, Callable[[], bool], CollectorRegistry], Coroutine[Any, Any, None]]:
    """Return a part of the operator's process that calls `replace_unstarted` every `look_every_s` seconds."""

    async def run(api: ApiServer, may_write: Callable[[], bool], _: CollectorRegistry) -> None:
        while True:
            if may_write():
                try:
                    await replace_unstarted(api, namespace, daemon_set)
                except ApiError as error:
                    _LOG.warning("pods of DaemonSet %s could not be read or deleted: %s", daemon_set, error)
            await asyncio.sleep(look_every_s)

    return run


async def replace_unstarted(api: ApiServer, namespace: str, daemon_set: str) -> list[str]:
    """Delete pods that never started and do not have the DaemonSet's latest template; return their names.

    Raises:
        ApiError: the API server does not answer, or forbids a request.
    """
    apps, core = f"/apis/apps/v1/namespaces/{namespace}", f"/api/v1/namespaces/{namespace}"
    try:
        owner = await api.get(f"{apps}/daemonsets/{daemon_set}")
    except ApiError as error:
        if error.status == 404:
            return []
        raise
    if owner["status"].get("observedGeneration") != owner["metadata"]["generation"]:
        return []  # the DaemonSet's controller has not read the latest template yet
    labels = ",".join(f"{key}={value}" for key, value in owner["spec"]["selector"]["matchLabels"].items())
    revisions = await _owned(api, f"{apps}/controllerrevisions", labels, owner)
    if not revisions:
        return []
    latest = max(revisions, key=lambda each: int(each["revision"]))["metadata"]["labels"][_HASH]
    deleted = []
    for pod in await _owned(api, f"{core}/pods", labels, owner):
        if pod["metadata"]["labels"].get(_HASH) != latest and never_started(pod):
            deleted += await _delete(api, f"{core}/pods", pod)
    return deleted


def never_started(pod: Body) -> bool:
    """Return whether the kubelet has reported no start of any container of the pod."""
    if pod["metadata"].get("deletionTimestamp"):
        return False
    return not any(
        each.get("restartCount") or each.get("lastState") or each.get("state", {}).keys() - {"waiting"}
        for each in pod.get("status", {}).get("containerStatuses") or ()
    )


async def _owned(api: ApiServer, path: str, labels: str, owner: Body) -> list[dict[str, Any]]:
    uid = owner["metadata"]["uid"]
    return [
        each
        async for page in api.pages(path, labelSelector=labels)
        for each in page["items"]
        if any(reference["uid"] == uid for reference in each["metadata"].get("ownerReferences") or ())
    ]


async def _delete(api: ApiServer, path: str, pod: Body) -> list[str]:
    """Delete a pod, unless it has changed since it was read: its container may have started since."""
    name = pod["metadata"]["name"]
    try:
        await api.delete(f"{path}/{name}", as_seen=pod["metadata"])
    except ApiError as error:
        if error.status in (404, 409):
            return []
        raise
    _LOG.info("pod %s never started and its template is outdated: deleted, so that it is created again", name)
    return [name]
