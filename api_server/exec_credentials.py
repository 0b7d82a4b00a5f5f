"""The data of a credential plugin: client.authentication.k8s.io, v1 and v1beta1.

The kubeconfig says how to run the plugin. The plugin prints an ExecCredential: a token, or a certificate with its key.
An ExecCredential is secret, so error messages quote only its kind and version.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal

import aiohttp
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from orion.errors import Unavailable

_EARLY = timedelta(seconds=30)
""" How long before its expiry a credential is renewed; a tenth of its lifetime if that is less. """
_QUOTED = 60
""" Characters of a kind or a version in an error. """


class LogInFailed(Unavailable, aiohttp.ClientConnectionError):
    """A credential plugin returned no credential.

    The class is also an error of aiohttp, so that code that sends requests handles it as a failed connection.
    """


@dataclass(frozen=True)
class Credential:
    """A plugin's credential: a token, or a certificate and its key as PEM, or both.

    Args:
        token: the token; empty: there is none.
        certificate: the certificate; empty: there is none.
        key: the certificate's key.
        renew_at: the time at which to run the plugin again; None: only when the API server rejects the credential.
    """

    token: str = field(repr=False)
    certificate: str = field(repr=False)
    key: str = field(repr=False)
    renew_at: datetime | None = field(default=None, compare=False)


class _Read(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)


class _Variable(_Read):
    name: str
    value: str = ""


class ProgramEntry(_Read):
    """A kubeconfig's users[].user.exec."""

    api_version: Literal["client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"]
    command: str = Field(min_length=1)
    args: list[str] | None = None
    env: list[_Variable] | None = None
    install_hint: str | None = None
    provide_cluster_info: bool | None = None
    interactive_mode: Literal["Never", "IfAvailable", "Always", "", None] = None


class _Status(_Read):
    token: str | None = Field(default=None, pattern=r"^\s*[\x21-\x7e]*\s*$")
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: AwareDatetime | None = None


class _ExecCredential(_Read):
    api_version: str = ""
    kind: str = ""
    status: _Status | None = None


def read_answer(output: bytes, version: str, program: str) -> Credential:
    """Return the credential that a plugin printed.

    Args:
        output: the plugin's standard output.
        version: the API version that the kubeconfig requires.
        program: the plugin's description, for error messages.

    Raises:
        LogInFailed: the output is not a credential.
    """
    try:
        answer = _ExecCredential.model_validate_json(output)
    except ValidationError as error:
        place = ".".join(map(str, error.errors()[0]["loc"]))
        what = f"an ExecCredential whose {place} cannot be read" if place else "no JSON object"
        raise LogInFailed(f"{program} printed {what}: is it a credential plugin, and up to date?") from None
    if answer.kind != "ExecCredential":
        kind = answer.kind[:_QUOTED]
        raise LogInFailed(f"{program} printed kind {kind!r}, not ExecCredential: is it a credential plugin?")
    if answer.api_version != version:
        raise LogInFailed(
            f"{program} answered in apiVersion {answer.api_version[:_QUOTED]!r}, but the kubeconfig requires "
            f"{version!r}: update the program, or generate the kubeconfig again with the command that created it"
        )
    return _credential(answer.status or _Status(), program)


def _credential(status: _Status, program: str) -> Credential:
    token, certificate, key = (status.token or "").strip(), status.client_certificate_data, status.client_key_data
    if bool(certificate) != bool(key):
        given, absent = ("certificate", "key") if certificate else ("key", "certificate")
        raise LogInFailed(f"{program} gave a {given} without its {absent}: is it up to date?")
    if not token and not certificate:
        raise LogInFailed(f"{program} gave neither a token nor a certificate: log in with its own command, then retry")
    return Credential(token, certificate or "", key or "", _renew_at(status.expiration_timestamp))


def _renew_at(end: datetime | None) -> datetime | None:
    if end is None:
        return None
    life = end - datetime.now(UTC)
    return end - min(_EARLY, life / 10)
