"""Reads and changes the caBundles of the webhook configuration. The API server trusts the authorities (CAs) in them.

A writer must read the configuration *before* it reads the Secret, and write the configuration with the resourceVersion
that it read. If the Secret has changed since, the configuration is outdated, too, and the API server rejects the write.
Otherwise a slow writer could remove an authority that another one has just written.

Where the operator makes the certificates, the chart must not set caBundle. Then `helm upgrade` and `kubectl apply` keep
the value that the operator wrote. An admission policy refuses every other change by the operator (webhook-policy.yaml).
"""

import base64
import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orion.operator.certificates.issuing import Certificate, read_bundle, write_bundle

_INJECTED = ("cert-manager.io/inject-ca-from", "cert-manager.io/inject-ca-from-secret")
""" Annotations that make cert-manager write the caBundles. """
FOLDER = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


@dataclass(frozen=True)
class Configuration:
    """The webhook configuration, as it was read from the API server.

    Args:
        name: the object's name.
        body: the object; None: it does not exist.
    """

    name: str
    body: Mapping[str, Any] | None

    @property
    def version(self) -> tuple[str, str]:
        """Uid and resourceVersion: they change whenever the object changes."""
        metadata = (self.body or {}).get("metadata") or {}
        return str(metadata.get("uid", "")), str(metadata.get("resourceVersion", ""))

    @property
    def others(self) -> str:
        """Why the operator makes no certificates for this configuration; empty: it does.

        If it wrote the caBundles that cert-manager writes, both would overwrite each other.
        """
        annotations = ((self.body or {}).get("metadata") or {}).get("annotations") or {}
        found = next((name for name in _INJECTED if annotations.get(name)), "")
        return found and (
            f"{self.name} carries {found}, so cert-manager writes its caBundle and the operator does nothing; "
            "remove the annotation if cert-manager does not make the certificates"
        )

    @property
    def bundles(self) -> tuple[tuple[Certificate, ...], ...]:
        """The authorities in the caBundle of each webhook of this configuration."""
        return tuple(_bundle(each) for each in (self.body or {}).get("webhooks") or ())

    def holds(self, wanted: Sequence[Certificate]) -> bool:
        """Return whether the caBundle of each webhook holds exactly the wanted authorities."""
        names = {each.fingerprint for each in wanted}
        return all({each.fingerprint for each in bundle} == names for bundle in self.bundles)

    def with_bundle(self, wanted: Sequence[Certificate]) -> dict[str, Any]:
        """Return a copy of the object with the wanted authorities in the caBundle of each webhook."""
        changed = copy.deepcopy(dict(self.body or {}))
        text = base64.b64encode(write_bundle(wanted)).decode()
        for webhook in changed.get("webhooks") or ():
            webhook.setdefault("clientConfig", {})["caBundle"] = text
        return changed


def _bundle(webhook: Mapping[str, Any]) -> tuple[Certificate, ...]:
    try:
        return read_bundle(base64.b64decode((webhook.get("clientConfig") or {}).get("caBundle") or ""))
    except ValueError:
        return ()
