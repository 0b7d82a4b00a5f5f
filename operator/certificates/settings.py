"""How the certificates are set: whose they are, who trusts them, how long they hold."""

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Name = Annotated[str, Field(pattern="^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=253)]
Duration = Annotated[timedelta, Field(gt=timedelta(0))]
Wait = Annotated[timedelta, Field(ge=timedelta(0))]


class Source(StrEnum):
    """Who makes the certificates."""

    OPERATOR = "operator"
    CERT_MANAGER = "cert-manager"
    """ Where it is installed; else the operator after all. """


class CertificateSettings(BaseModel):
    """All of it. The times are chosen so that a leaf is never shortened by its authority's end."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    namespace: Name = "orion-system"
    """ Of the Secret and the Service. """

    secret: Name = "orion-webhook-certificate"
    """ Holds everything; the webhook mounts tls.crt and tls.key of it, and nothing else. """

    service: Name = "orion-webhook"
    """ What the API server connects to; its EndpointSlices name the replicas. """

    port_name: str = "https"
    """ Of the Service's port, where it has several. """

    names: tuple[str, ...] = ()
    """ Host names and addresses in the leaf beside the Service's own. """

    replicas: tuple[Annotated[str, Field(pattern=r"^.+:\d+$")], ...] = ()
    """ HOST:PORT of each replica, in the place of the Service's EndpointSlices. """

    configurations: Annotated[
        tuple[Annotated[str, Field(pattern="^(Mutating|Validating)WebhookConfiguration/.+$")], ...],
        Field(min_length=1),
    ] = ("MutatingWebhookConfiguration/orion",)
    """ KIND/NAME of the objects whose caBundles are kept; every webhook in them is ours. """

    source: Source = Source.OPERATOR

    leaf_validity: Duration = timedelta(days=90)
    leaf_renew_before: Duration = timedelta(days=30)
    """ How long before its end a leaf is replaced. """

    authority_validity: Duration = timedelta(days=365)
    authority_renew_before: Duration = timedelta(days=120)

    backdated: Wait = timedelta(hours=1)
    """ How far in the past certificates begin, for clocks that disagree. """

    spread: Wait = timedelta(seconds=60)
    """ How long every caBundle has held a new authority before it signs; an API server may see it a little late. """

    settle: Wait = timedelta(seconds=60)
    """ How long every replica has shown the new leaf before the authority of before is dropped. """

    look_every: Duration = timedelta(seconds=10)
    look_every_while_moving: Duration = timedelta(seconds=2)

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.leaf_renew_before >= self.leaf_validity:
            raise ValueError("leaf_renew_before must be shorter than leaf_validity")
        if self.authority_renew_before < self.leaf_validity:
            raise ValueError("authority_renew_before must be at least leaf_validity, or leaves outlive their authority")
        if self.authority_renew_before >= self.authority_validity:
            raise ValueError("authority_renew_before must be shorter than authority_validity")
        return self

    @property
    def leaf_names(self) -> tuple[str, ...]:
        """What the leaf is for, the name that the API server asks for first."""
        service = f"{self.service}.{self.namespace}.svc"
        return tuple(dict.fromkeys((service, f"{service}.cluster.local", *self.names)))
