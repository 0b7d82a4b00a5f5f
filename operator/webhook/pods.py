"""The parts of a pod that admission reads; a pod is changed as the plain object that it came as.

Own small models instead of a client library's: they are read two hundred times a second, and what they do not know of
a pod must come through a change untouched.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel


class Part(BaseModel):
    """A part of a pod; null and absent are the same."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)


class EnvironmentVariable(Part):
    """An environment variable, given as text or by reference."""

    name: str
    value: str | None = None
    value_from: dict[str, Any] | None = None

    @property
    def literal(self) -> str | None:
        """Its text; None where it is somewhere else."""
        return None if self.value_from else self.value or ""


class EnvironmentSource(Part):
    """A ConfigMap or Secret whose keys become environment variables."""

    prefix: str | None = None


class Resources(Part):
    """What a container asks for."""

    requests: dict[str, str | int | float] | None = None
    limits: dict[str, str | int | float] | None = None


class VolumeMount(Part):
    """Where a container sees a volume."""

    name: str
    mount_path: str


class ContainerSecurity(Part):
    """What a container may do on its node."""

    privileged: bool | None = None


class Container(Part):
    """A container of any kind."""

    name: str
    env: list[EnvironmentVariable] | None = None
    env_from: list[EnvironmentSource] | None = None
    resources: Resources | None = None
    volume_mounts: list[VolumeMount] | None = None
    security_context: ContainerSecurity | None = None
    restart_policy: str | None = None


class HostPath(Part):
    """A path of the node."""

    path: str


class Volume(Part):
    """A volume; only those that are paths of the node matter here."""

    name: str
    host_path: HostPath | None = None


class PodSpec(Part):
    """What a pod runs."""

    containers: list[Container]
    init_containers: list[Container] | None = None
    ephemeral_containers: list[Container] | None = None
    volumes: list[Volume] | None = None
    host_pid: Annotated[bool | None, Field(alias="hostPID")] = None
    runtime_class_name: str | None = None


class PodMetadata(Part):
    """What a pod is called, and what its owner says of it."""

    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class Pod(Part):
    """A pod."""

    metadata: PodMetadata = PodMetadata()
    spec: PodSpec


class Role(StrEnum):
    """When a container runs."""

    APP = "container"
    SIDECAR = "sidecar"
    INIT = "init container"
    EPHEMERAL = "ephemeral container"


LISTS = {"containers": "containers", "initContainers": "init_containers", "ephemeralContainers": "ephemeral_containers"}
""" Lists of containers: their names in a pod, and here. """


@dataclass(frozen=True)
class Place:
    """A container and where it stands.

    Args:
        role: when it runs.
        list: the pod's list that it is in.
        index: its place in that list.
        container: itself.
    """

    role: Role
    list: str
    index: int
    container: Container

    @property
    def name(self) -> str:
        """The container's own name, unique in its pod."""
        return self.container.name

    def __str__(self) -> str:
        return f"{self.role} {self.name}"


def places(spec: PodSpec) -> Iterator[Place]:
    """Yield every container of a pod, those that run together first."""
    for name, attribute in LISTS.items():
        for index, container in enumerate(getattr(spec, attribute) or ()):
            yield Place(_role(name, container), name, index, container)


def _role(name: str, container: Container) -> Role:
    if name == "containers":
        return Role.APP
    if name == "ephemeralContainers":
        return Role.EPHEMERAL
    return Role.SIDECAR if container.restart_policy == "Always" else Role.INIT
