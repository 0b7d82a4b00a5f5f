"""Whether others look after the certificates: cert-manager, where it is installed and the chart asks for it.

Its `Certificate` fills the Secret, and its injector writes the caBundle of configurations that carry an annotation. Two
that write one caBundle take turns in breaking it, so wherever that annotation is and cert-manager is, too, the rotation
stays out and says so.
"""

from collections.abc import Iterable

from orion.operator.certificates.api import Api, ApiError
from orion.operator.certificates.bundles import Configuration
from orion.operator.certificates.settings import CertificateSettings, Source

INJECTED = ("cert-manager.io/inject-ca-from", "cert-manager.io/inject-ca-from-secret")
_KINDS = "/apis/cert-manager.io/v1"


async def is_installed(api: Api) -> bool:
    """Return whether the API server knows cert-manager's certificates.

    Raises:
        ApiError: it cannot be asked.
    """
    try:
        found = await api.get(_KINDS)
    except ApiError as error:
        if error.status == 404:
            return False
        raise
    return any(each.get("name") == "certificates" for each in found.get("resources") or ())


async def looks_after(
    api: Api, settings: CertificateSettings, configurations: Iterable[Configuration]
) -> tuple[bool, str]:
    """Return whether the rotation stays out, and a sentence where there is something to say.

    Raises:
        ApiError: the API server cannot be asked.
    """
    annotated = [each.name for each in configurations if _is_annotated(each)]
    if settings.source is Source.OPERATOR and not annotated:
        return False, ""
    installed = await is_installed(api)
    if settings.source is Source.CERT_MANAGER:
        if not installed:
            return False, (
                "cert-manager is to make the certificates, but the API server does not know "
                "certificates.cert-manager.io: until it does, the operator makes them"
            )
        sentence = f"cert-manager fills the Secret {settings.namespace}/{settings.secret}, the rotation stays out"
        bare = [each for each in settings.configurations if each not in annotated]
        return True, sentence + (f"; but {', '.join(bare)} lacks the annotation {INJECTED[0]}" if bare else "")
    if not installed:
        return False, ""
    return True, (
        f"{', '.join(annotated)} carries {INJECTED[0]}, so cert-manager writes its caBundle and the rotation stays "
        f"out; remove the annotation, or let cert-manager make the certificates"
    )


def _is_annotated(configuration: Configuration) -> bool:
    annotations = ((configuration.body or {}).get("metadata") or {}).get("annotations") or {}
    return any(annotations.get(name) for name in INJECTED)
