"""The text of `orion certificates show`."""

from datetime import datetime, timedelta

from orion.operator.certificates.api import Api, get_or_none
from orion.operator.certificates.bundles import FOLDER, Configuration
from orion.operator.certificates.issuing import Certificate
from orion.operator.certificates.settings import CertificateSettings
from orion.operator.certificates.state import State, read_state


async def show(api: Api, settings: CertificateSettings, now: datetime) -> list[str]:
    """Return lines about the Secret and the caBundles. They contain no private key.

    Raises:
        ApiError: the API server does not answer, or forbids a request.
    """
    secret = await get_or_none(api, f"/api/v1/namespaces/{settings.namespace}/secrets/{settings.secret}")
    state = read_state((secret or {}).get("data") or {})
    name = settings.configuration
    configuration = Configuration(name, await get_or_none(api, f"{FOLDER}/{name}"))
    lines = [configuration.others] if configuration.others else []
    lines.append(
        f"Secret {settings.namespace}/{settings.secret}: {_summary(state, now) if secret else 'does not exist'}"
    )
    lines += [f"  {problem}" for problem in state.problems]
    lines += _certificates(state, now)
    return [*lines, f"MutatingWebhookConfiguration/{name}: {_trust(configuration, state)}"]


def _summary(state: State, now: datetime) -> str:
    if not state.serves(now):
        return "holds no leaf that an API server accepts"
    if not state.is_signed:
        return "the new authority has not signed a leaf yet"
    return "at rest" + (", with retired authorities" if state.retired else "")


def _certificates(state: State, now: datetime) -> list[str]:
    parts = [("leaf", state.leaf), ("authority", state.authority)]
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
