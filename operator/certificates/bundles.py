"""The caBundles through which the API server trusts the webhook: which authorities they hold, and writing others.

A configuration is written under the resourceVersion that was read *before* the Secret was: a rotator that is late (it
has read a Secret that is no longer so) then has an older configuration too, and is refused, rather than taking an
authority away that another has just spread.

The chart must not name caBundle: what applies or upgrades it then leaves ours as it is.
"""

import base64
import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orion.operator.certificates.issuing import Certificate, read_bundle, write_bundle

_FOLDERS = {
    "MutatingWebhookConfiguration": "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
    "ValidatingWebhookConfiguration": "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
}


@dataclass(frozen=True)
class Configuration:
    """A webhook configuration as it was read.

    Args:
        name: KIND/NAME.
        body: as the API server has it; None: it does not exist.
    """

    name: str
    body: Mapping[str, Any] | None

    @property
    def path(self) -> str:
        """Where the API server has it."""
        return path_of(self.name)

    @property
    def mark(self) -> tuple[str, str, str]:
        """What changes whenever the object does."""
        metadata = (self.body or {}).get("metadata") or {}
        return self.name, str(metadata.get("uid", "")), str(metadata.get("resourceVersion", ""))

    @property
    def bundles(self) -> tuple[tuple[Certificate, ...], ...]:
        """The authorities of each of its webhooks."""
        return tuple(_bundle(each) for each in (self.body or {}).get("webhooks") or ())

    def holds(self, wanted: Sequence[Certificate]) -> bool:
        """Return whether each of its webhooks trusts exactly these."""
        names = {each.fingerprint for each in wanted}
        return all({each.fingerprint for each in bundle} == names for bundle in self.bundles)

    def with_bundle(self, wanted: Sequence[Certificate]) -> dict[str, Any]:
        """Return the object with these in each of its webhooks."""
        changed = copy.deepcopy(dict(self.body or {}))
        text = base64.b64encode(write_bundle(wanted)).decode()
        for webhook in changed.get("webhooks") or ():
            webhook.setdefault("clientConfig", {})["caBundle"] = text
        return changed


def path_of(name: str) -> str:
    """Return the path of KIND/NAME."""
    kind, _, own = name.partition("/")
    return f"{_FOLDERS[kind]}/{own}"


def _bundle(webhook: Mapping[str, Any]) -> tuple[Certificate, ...]:
    try:
        return read_bundle(base64.b64decode((webhook.get("clientConfig") or {}).get("caBundle") or ""))
    except ValueError:
        return ()
