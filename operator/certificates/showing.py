"""The text of `orion certificates show`."""

from datetime import datetime, timedelta

from orion.operator.certificates import cert_manager
from orion.operator.certificates.api import Api, get_or_none
from orion.operator.certificates.bundles import Configuration, path_of
from orion.operator.certificates.deciding import phase
from orion.operator.certificates.issuing import Certificate
from orion.operator.certificates.replicas import Replicas
from orion.operator.certificates.settings import CertificateSettings
from orion.operator.certificates.state import State, read_state


async def show(api: Api, settings: CertificateSettings, now: datetime) -> list[str]:
    """Return lines about the Secret, the caBundles and the replicas. They contain no private key.

    Raises:
        ApiError: the API server does not answer, or forbids a request.
    """
    secret = await get_or_none(api, f"/api/v1/namespaces/{settings.namespace}/secrets/{settings.secret}")
    state = read_state((secret or {}).get("data") or {})
    configurations = [Configuration(name, await get_or_none(api, path_of(name))) for name in settings.configurations]
    _, sentence = await cert_manager.manages_certificates(api, settings, configurations)
    lines = [sentence] if sentence else []
    lines.append(f"Secret {settings.namespace}/{settings.secret}: {phase(state, now) if secret else 'does not exist'}")
    lines += [f"  {problem}" for problem in state.problems]
    lines += _certificates(state, now)
    lines += [f"{each.name}: {_trust(each, state)}" for each in configurations]
    for replica, der in await Replicas(api, settings).shown():
        shown = "does not answer" if der is None else _which(der, state)
        lines.append(f"replica {replica}: {shown}" + ("" if replica.ready else " (not ready)"))
    return lines


def _certificates(state: State, now: datetime) -> list[str]:
    parts = [("leaf", state.leaf), ("authority", state.authority), ("coming authority", state.coming)]
    parts += [("retired authority", each) for each in state.retired]
    return [f"  {name}: {_describe(each, now)}" for name, each in parts if each is not None]


def _describe(certificate: Certificate, now: datetime) -> str:
    left = certificate.ends - now
    ends = f"{certificate.ends:%Y-%m-%d %H:%M} UTC"
    reported = f"{certificate.fingerprint[:12]}, " + (f"ended at {ends}" if left < timedelta(0) else f"ends at {ends}")
    return reported + (f", for {', '.join(sorted(certificate.names))}" if certificate.names else "")


def _trust(configuration: Configuration, state: State) -> str:
    if configuration.body is None:
        return "does not exist"
    if state.trusted and configuration.holds(state.trusted):
        return f"trusts {', '.join(each.fingerprint[:12] for each in state.trusted)}"
    lacking = [
        each.fingerprint[:12]
        for each in state.trusted
        if not all(each.fingerprint in {one.fingerprint for one in bundle} for bundle in configuration.bundles)
    ]
    return f"does not trust {', '.join(lacking)} yet" if lacking else "trusts an authority that is not in the Secret"


def _which(der: bytes, state: State) -> str:
    return "serves the leaf" if state.leaf is not None and der == state.leaf.der else "serves another certificate"
