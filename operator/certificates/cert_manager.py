"""Finds out whether cert-manager manages the webhook's certificates.

cert-manager's `Certificate` fills the Secret. Its injector writes the caBundle of every configuration that carries an
annotation. If the operator wrote the same caBundle, both would overwrite each other. So the operator makes no
certificates where cert-manager is installed and the configuration carries the annotation, and it logs that.
"""

from orion.operator.certificates.api import Api, ApiError
from orion.operator.certificates.bundles import Configuration
from orion.operator.certificates.settings import CertificateSettings, Source

INJECTED = ("cert-manager.io/inject-ca-from", "cert-manager.io/inject-ca-from-secret")
_KINDS = "/apis/cert-manager.io/v1"


async def is_installed(api: Api) -> bool:
    """Return whether the API server has the resource `certificates` of cert-manager.

    Raises:
        ApiError: the API server does not answer, or forbids the request.
    """
    try:
        found = await api.get(_KINDS)
    except ApiError as error:
        if error.status == 404:
            return False
        raise
    return any(each.get("name") == "certificates" for each in found.get("resources") or ())


async def manages_certificates(
    api: Api, settings: CertificateSettings, configuration: Configuration
) -> tuple[bool, str]:
    """Return whether cert-manager manages the certificates, and a sentence for the log (can be empty).

    Raises:
        ApiError: the API server does not answer, or forbids the request.
    """
    annotations = ((configuration.body or {}).get("metadata") or {}).get("annotations") or {}
    annotated = any(annotations.get(name) for name in INJECTED)
    if settings.source is Source.OPERATOR and not annotated:
        return False, ""
    installed = await is_installed(api)
    if settings.source is Source.CERT_MANAGER:
        if not installed:
            return False, (
                "the operator makes the certificates until cert-manager is installed: "
                "the API server does not know certificates.cert-manager.io"
            )
        sentence = f"cert-manager fills the Secret {settings.namespace}/{settings.secret}, so the operator does nothing"
        bare = f"; but {settings.configuration} lacks the annotation {INJECTED[0]}"
        return True, sentence + ("" if annotated else bare)
    if not installed:
        return False, ""
    return True, (
        f"{settings.configuration} carries {INJECTED[0]}, so cert-manager writes its caBundle and the operator does "
        "nothing; remove the annotation, or run the operator with --certificates cert-manager"
    )
