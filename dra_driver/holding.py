"""Decides which pods must not start without an agent, and holds the restarts of their containers.

A container's restart does not pass through the driver. So the CDI file of a claim whose pods must be held names a
program that the container runtime runs before each start (`hook/starting/await_agent.c`). It asks the agent on the
slot's own socket, which the container's processes will join. Other claims' files have no such hook, and their
containers restart at once.

The hook is `createRuntime`: it runs on the node, before the container has its own view of the file system, and its
failure fails the start, with what it wrote to stderr in the pod's Events. The kubelet then tries again with its usual
back-off.

The wait is short. A pod that is deleted meanwhile ends after it. And containerd's shim, which serves one pod, takes no
call about any container of the pod while a hook runs, before containerd 2.3.2: an exec probe would fail.

Rejected: `startContainer`, which delays nothing else. It runs as the container's user, the pod is Running meanwhile,
its sentence is lost, and an exec into the container does not wait. Rejected: `createContainer`, which runs in the
container's namespaces for no gain. Rejected: a wait in the hook library, which must never hang a program.
"""

from collections.abc import Callable, Iterable
from typing import Any

from orion.crds.node_configuration import NodeSettings, OnNoAgent
from orion.dra_driver.claims import Pod
from orion.dra_driver.names import cdi_name
from orion.dra_driver.records import Record
from orion.injection.cdi import add_hook
from orion.injection.describing import Places
from orion.injection.fail_closed import FailClosedPods
from orion.injection.installing import AWAIT_AGENT
from orion.injection.mount_sources import slot_directory

_WAIT_SECONDS = 15
""" With the usual exec probe, one each 10 s of which three in a row must fail, no container of the pod is killed. """
_END_SECONDS = 5
""" The runtime kills the program so long after its wait. """


class Holding:
    """Decides which pods are held.

    Args:
        places: where the slots' folders and the program are on the node.
        fail_closed: the uids of the pods that must not start without the hook.
        settings: returns the settings now in force.
    """

    def __init__(self, places: Places, fail_closed: FailClosedPods, settings: Callable[[], NodeSettings]) -> None:
        self._places, self._fail_closed, self._settings = places, fail_closed, settings

    def why(self, pods: Iterable[Pod]) -> str:
        """Return why pods of a claim must not start without an agent; empty: they may."""
        if any(pod.uid in self._fail_closed for pod in pods):
            return "the pod is failClosed"
        return "onNoAgent is hold" if self._settings().on_no_agent is OnNoAgent.HOLD else ""

    def specification(self, record: Record) -> dict[str, Any]:
        """Return the CDI specification of a claim, with the hook if its pods are held now."""
        if not self.why(record.pods):
            return record.specification
        specification, program = record.specification, str(self._places.files.current / AWAIT_AGENT)
        for request in {share.request for share in record.shares}:
            folders = (
                slot_directory(self._places.root, each.slot) for each in record.shares if each.request == request
            )
            command = [program, str(_WAIT_SECONDS), *map(str, folders)]
            device, timeout = cdi_name(record.uid, request), _WAIT_SECONDS + _END_SECONDS
            specification = add_hook(specification, device, "createRuntime", command, timeout)
        return specification
