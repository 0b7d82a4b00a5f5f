"""Writes the description of what a container gets as the kubelet's ContainerAllocateResponse."""

from orion.crds.node_configuration import DeviceListStrategy
from orion.device_plugin.kubelet import api_pb2
from orion.injection.description import Description
from orion.injection.slots import Resource


def render(given: Description, resource: Resource, strategy: DeviceListStrategy) -> api_pb2.ContainerAllocateResponse:
    """Return the description as the kubelet's answer.

    With `cdi-annotations` an annotation of the container has the CDI names; else the field that the kubelet passes to
    the runtime through the CRI. Each resource has its own annotation, as the kubelet merges by key.
    """
    answer = api_pb2.ContainerAllocateResponse(envs=given.environment)
    for mount in given.mounts:
        answer.mounts.add(host_path=str(mount.source), container_path=mount.target, read_only=mount.read_only)
    for node in given.device_nodes:
        answer.devices.add(host_path=str(node.source), container_path=node.target, permissions=node.permissions)
    if given.cdi_names and strategy is DeviceListStrategy.CDI_ANNOTATIONS:
        answer.annotations[f"cdi.k8s.io/orion-device-plugin_{resource.role}"] = ",".join(given.cdi_names)
    else:
        answer.cdi_devices.extend(api_pb2.CDIDevice(name=name) for name in given.cdi_names)
    return answer
