"""Answers Allocate for a container that must not start, instead of an error.

An error of Allocate fails the pod for good, and its controller creates the next pod at once: hundreds a minute, each of
which fails. So Allocate accepts the slots, and PreStartContainer refuses the start. The pod then waits, its Events say
why, and the kubelet calls PreStartContainer again and again (docs/device-plugin.md).

The answer itself prevents the start, too, because a kubelet that has just started calls no PreStartContainer until the
plugin has registered: the answer names a device that does not exist, so no container runtime creates the container. The
answer gives no GPU, no slot and no hook. The kubelet stores the answer for the life of the pod, and the annotation in
it tells PreStartContainer the reason, also after a restart of the plugin.

Rejected: a list of refused containers in a file of the plugin. The answer in the kubelet's checkpoint is always the
answer that the container would start with.
"""

from orion.device_plugin.kubelet import api_pb2

ANNOTATION = "orion.gpu/refused"
NO_DEVICE = "/dev/orion-refuses-this-container"
""" A path at which nobody makes a device. Container runtimes name it in their error. """


def refuse(reason: str) -> api_pb2.ContainerAllocateResponse:
    """Return an answer with which the container cannot start."""
    answer = api_pb2.ContainerAllocateResponse(annotations={ANNOTATION: reason})
    answer.devices.add(container_path=NO_DEVICE, host_path=NO_DEVICE, permissions="r")
    return answer


def reason_of(answer: api_pb2.ContainerAllocateResponse) -> str:
    """Return why the container must not start; empty: it may start."""
    return answer.annotations.get(ANNOTATION, "")
