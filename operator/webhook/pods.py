"""Models of the parts of a pod that admission reads. Admission changes the pod's parsed JSON, not these models.

The models are smaller than those of a client library, because the webhook parses hundreds of pods a second. Admission
changes the JSON because a patch must keep the fields that the models do not know.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel


class Part(BaseModel):
    """Base class of the models. Null and absent fields are the same."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)


class EnvironmentVariable(Part):
    """An environment variable, with a literal value or a reference (valueFrom)."""

    name: str
    value: str | None = None
    value_from: dict[str, Any] | None = None

    @property
    def literal(self) -> str | None:
        """The literal value; None: the value is a reference."""
        return None if self.value_from else self.value or ""


class EnvironmentSource(Part):
    """A ConfigMap or Secret whose keys become environment variables."""

    prefix: str | None = None


class ClaimUse(Part):
    """A container's use of one of its pod's ResourceClaims: of one request, or of the whole claim."""

    name: str
    request: str | None = None


class Resources(Part):
    """The resource requests and limits of a container, and the ResourceClaims that it uses."""

    requests: dict[str, str | int | float] | None = None
    limits: dict[str, str | int | float] | None = None
    claims: list[ClaimUse] | None = None


class VolumeMount(Part):
    """The mount of a volume in a container."""

    name: str
    mount_path: str


class ContainerSecurity(Part):
    """The securityContext of a container."""

    privileged: bool | None = None


class Container(Part):
    """A container: app, init or ephemeral."""

    name: str
    env: list[EnvironmentVariable] | None = None
    env_from: list[EnvironmentSource] | None = None
    resources: Resources | None = None
    volume_mounts: list[VolumeMount] | None = None
    security_context: ContainerSecurity | None = None
    liveness_probe: dict[str, Any] | None = None
    restart_policy: str | None = None


class HostPath(Part):
    """A path of the node."""

    path: str


class Volume(Part):
    """A volume. Only hostPath volumes are read."""

    name: str
    host_path: HostPath | None = None


class PodClaimSource(Part):
    """A ResourceClaim of a pod: an existing one, or one from a template."""

    name: str
    resource_claim_template_name: str | None = None


class PodSpec(Part):
    """The spec of a pod."""

    containers: list[Container]
    init_containers: list[Container] | None = None
    ephemeral_containers: list[Container] | None = None
    volumes: list[Volume] | None = None
    resources: Resources | None = None
    host_pid: Annotated[bool | None, Field(alias="hostPID")] = None
    runtime_class_name: str | None = None
    resource_claims: list[PodClaimSource] | None = None
    node_name: str | None = None
    node_selector: dict[str, str] | None = None
    affinity: dict[str, Any] | None = None


class OwnerReference(Part):
    """A reference to an object that owns a pod."""

    kind: str = ""
    name: str = ""
    controller: bool | None = None


class PodMetadata(Part):
    """The metadata of a pod."""

    name: str | None = None
    namespace: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None


class Pod(Part):
    """A pod."""

    metadata: PodMetadata = PodMetadata()
    spec: PodSpec


class Role(StrEnum):
    """The type of a container, as messages name it."""

    APP = "container"
    SIDECAR = "sidecar"
    INIT = "init container"
    EPHEMERAL = "ephemeral container"


LISTS = {"containers": "containers", "initContainers": "init_containers", "ephemeralContainers": "ephemeral_containers"}
""" The lists of containers: field names in the pod's JSON, and attribute names of `PodSpec`. """


@dataclass(frozen=True)
class PodContainer:
    """A container and its position in the pod.

    Args:
        role: the type of the container.
        list: the field of the pod's spec that holds the container.
        index: the container's index in that list.
        container: the container.
    """

    role: Role
    list: str
    index: int
    container: Container

    @property
    def name(self) -> str:
        """The container's name, unique in its pod."""
        return self.container.name

    def __str__(self) -> str:
        return f"{self.role} {self.name}"


def containers_of(spec: PodSpec) -> Iterator[PodContainer]:
    """Yield every container of a pod: app containers, then init containers and sidecars, then ephemeral ones."""
    for name, attribute in LISTS.items():
        for index, container in enumerate(getattr(spec, attribute) or ()):
            yield PodContainer(_role(name, container), name, index, container)


def _role(name: str, container: Container) -> Role:
    if name == "containers":
        return Role.APP
    if name == "ephemeralContainers":
        return Role.EPHEMERAL
    return Role.SIDECAR if container.restart_policy == "Always" else Role.INIT
