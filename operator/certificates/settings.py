"""Settings of the certificates: the names of the objects, validity periods and waits."""

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
    """ cert-manager makes the certificates. While it is not installed, the operator makes them. """


class CertificateSettings(BaseModel):
    """All settings. With the default times, an authority always outlives the leaves that it signs."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    namespace: Name = "orion-system"
    """ The namespace of the Secret and of the Service. """

    secret: Name = "orion-webhook-certificate"
    """ The Secret that holds the leaf, the authorities and their keys. The webhook mounts only tls.crt and tls.key. """

    service: Name = "orion-webhook"
    """ The Service that the API server connects to. Its EndpointSlices name the replicas. """

    port_name: str = "https"
    """ The name of the HTTPS port, in case the Service has several ports. """

    names: tuple[str, ...] = ()
    """ Host names and IP addresses in the leaf, in addition to the Service's names. """

    replicas: tuple[Annotated[str, Field(pattern=r"^.+:\d+$")], ...] = ()
    """ HOST:PORT of each replica, instead of the Service's EndpointSlices. """

    configurations: Annotated[
        tuple[Annotated[str, Field(pattern="^(Mutating|Validating)WebhookConfiguration/.+$")], ...],
        Field(min_length=1),
    ] = ("MutatingWebhookConfiguration/orion",)
    """ KIND/NAME of the configurations whose caBundles the operator writes. All webhooks in them must be Orion's. """

    source: Source = Source.OPERATOR

    leaf_validity: Duration = timedelta(days=90)
    leaf_renew_before: Duration = timedelta(days=30)
    """ How long before its expiry a leaf is replaced. """

    authority_validity: Duration = timedelta(days=365)
    authority_renew_before: Duration = timedelta(days=120)

    backdated: Wait = timedelta(hours=1)
    """ How far in the past the validity of a certificate begins. Clocks may differ by up to this time. """

    spread: Wait = timedelta(seconds=60)
    """ How long every caBundle must have held a new authority before the authority signs. API servers read the
    caBundles with a delay. """

    settle: Wait = timedelta(seconds=60)
    """ How long every replica must have served the new leaf before the retired authority is dropped. """

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
        """Names for which the leaf is valid. The first is the one that the API server uses."""
        service = f"{self.service}.{self.namespace}.svc"
        return tuple(dict.fromkeys((service, f"{service}.cluster.local", *self.names)))
