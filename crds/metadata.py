"""The part of Kubernetes' object metadata that Orion reads."""

from typing import Annotated

from pydantic import ConfigDict, Field

from orion.crds.model import Model

NAME_PATTERN = "^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$"
ObjectName = Annotated[str, Field(pattern=NAME_PATTERN, max_length=253)]


class Metadata(Model):
    """The metadata that Orion reads; pydantic keeps all other fields unchanged."""

    model_config = ConfigDict(extra="allow")

    name: ObjectName
    namespace: ObjectName | None = None
    uid: str | None = None
    generation: int | None = None
    resource_version: str | None = None
    creation_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
