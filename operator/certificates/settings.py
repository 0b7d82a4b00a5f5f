"""Settings of the certificates: the names of the objects, validity periods and waits."""

from datetime import timedelta
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Name = Annotated[str, Field(pattern="^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=253)]
Duration = Annotated[timedelta, Field(gt=timedelta(0))]
Wait = Annotated[timedelta, Field(ge=timedelta(0))]


class CertificateSettings(BaseModel):
    """All settings. With the default times, an authority always outlives the leaves that it signs."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    namespace: Name = "orion-system"
    """ The namespace of the Secret and of the Service. """

    secret: Name = "orion-webhook-certificate"
    """ The Secret that holds the leaf, the authorities and their keys. The webhook mounts only tls.crt and tls.key. """

    service: Name = "orion-webhook"
    """ The Service that the API server connects to. """

    names: tuple[str, ...] = ()
    """ Host names and IP addresses in the leaf, in addition to the Service's names. """

    configuration: Name = "orion"
    """ The MutatingWebhookConfiguration whose caBundles the operator writes. All webhooks in it must be Orion's. """

    leaf_validity: Duration = timedelta(days=90)
    leaf_renew_before: Duration = timedelta(days=30)
    """ How long before its expiry a leaf is replaced. """

    authority_validity: Duration = timedelta(days=3650)
    authority_renew_before: Duration = timedelta(days=365)

    backdated: Wait = timedelta(hours=1)
    """ How far in the past the validity of a certificate begins. Clocks may differ by up to this time. """

    spread: Wait = timedelta(seconds=60)
    """ How long every caBundle must have held a new authority before the authority signs. API servers read the
    caBundles with a delay. """

    drop_retired_after: Wait = timedelta(days=1)
    """ How old the new authority's leaf must be before retired authorities are dropped. A kubelet delivers a Secret
    within two minutes. If it does not work, its node's replicas leave the Service within one. """

    look_every: Duration = timedelta(seconds=5)
    """ Time between two passes: how long a changed caBundle stays wrong. """

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.leaf_renew_before >= self.leaf_validity:
            raise ValueError("leaf_renew_before must be shorter than leaf_validity")
        if self.drop_retired_after >= self.leaf_validity - self.leaf_renew_before:
            raise ValueError("drop_retired_after must be shorter than the time after which a leaf is renewed")
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
