"""Creates and parses certificates: authorities (CAs), leaves, and self-signed certificates.

Keys are ECDSA P-256. They are small, every TLS library supports them, and a new key takes about a millisecond.
"""

import functools
import ipaddress
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from orion.errors import Unreadable

_BLOCK = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_PEM = serialization.Encoding.PEM
_DAMAGED = (
    ValueError, TypeError, UnsupportedAlgorithm,
    x509.DuplicateExtension, x509.InvalidVersion, x509.UnsupportedGeneralNameType,
)  # fmt: skip
"""The exceptions that `cryptography` raises for damaged certificates and for unsupported ones."""


@dataclass(frozen=True)
class Certificate:
    """A certificate, with its private key if that is known.

    Args:
        pem: the certificate as PEM.
        key: its private key as PEM; empty: not known.
    """

    pem: bytes
    key: bytes = b""

    @functools.cached_property
    def parsed(self) -> x509.Certificate:
        """The certificate as an object of the library `cryptography`."""
        return x509.load_pem_x509_certificate(self.pem)

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the certificate in hexadecimal digits. It identifies the certificate."""
        return self.parsed.fingerprint(hashes.SHA256()).hex()

    @property
    def begins(self) -> datetime:
        """The time from which the certificate is valid."""
        return self.parsed.not_valid_before_utc

    @property
    def ends(self) -> datetime:
        """The time at which the certificate expires."""
        return self.parsed.not_valid_after_utc

    @functools.cached_property
    def names(self) -> frozenset[str]:
        """The host names and IP addresses for which the certificate is valid."""
        try:
            found = self.parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except x509.ExtensionNotFound:
            return frozenset()
        addresses = map(str, found.get_values_for_type(x509.IPAddress))
        return frozenset((*found.get_values_for_type(x509.DNSName), *addresses))

    @functools.cached_property
    def is_authority(self) -> bool:
        """Whether the certificate may sign other certificates and its own signature is valid."""
        try:
            may_sign = self.parsed.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        except x509.ExtensionNotFound:
            return False
        return may_sign and self.signed(self)

    def holds(self, now: datetime) -> bool:
        """Return whether `now` lies in the certificate's validity period."""
        return self.begins <= now <= self.ends

    def can_sign(self, now: datetime) -> bool:
        """Return whether this is an authority that is valid at `now` and whose key is known."""
        if not self.key or not self.holds(now):
            return False
        private = serialization.load_pem_private_key(self.key, None)
        return self.is_authority and isinstance(private, ec.EllipticCurvePrivateKey)

    def signed(self, other: "Certificate") -> bool:
        """Return whether this authority signed the other certificate."""
        try:
            other.parsed.verify_directly_issued_by(self.parsed)
        except (*_DAMAGED, InvalidSignature):
            return False
        return True

    def without_key(self) -> "Certificate":
        """Return the certificate without its private key."""
        return Certificate(self.pem)


def read(pem: bytes, key: bytes = b"") -> Certificate:
    """Parse a certificate in PEM.

    Raises:
        Unreadable: the PEM is not a valid certificate, or the key is another certificate's.
    """
    found = Certificate(pem, key)
    try:
        public = found.parsed.public_key()
        private = serialization.load_pem_private_key(key, None) if key else None
        _ = found.names, found.is_authority, found.parsed.subject  # raises here, not later, if one of them is damaged
    except _DAMAGED as error:
        raise Unreadable(str(error).split("\n")[0]) from error
    if private is not None and private.public_key() != public:
        raise Unreadable("the key is another certificate's")
    return found


def read_bundle(text: bytes) -> tuple[Certificate, ...]:
    """Return the certificates of a PEM bundle. Everything else in the bundle is ignored."""
    found = []
    for block in _BLOCK.findall(text):
        try:
            found.append(read(block + b"\n"))
        except Unreadable:
            continue
    return tuple(found)


def write_bundle(certificates: Iterable[Certificate]) -> bytes:
    """Return a PEM bundle. The same certificates always give the same bytes."""
    return b"".join(each.pem.strip() + b"\n" for each in certificates)


def new_authority(now: datetime, validity: timedelta, backdated: timedelta) -> Certificate:
    """Make a self-signed authority. It may sign leaves, but no further authorities (path length 0)."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _unique("orion webhook authority")
    usage = x509.KeyUsage(
        digital_signature=False, key_cert_sign=True, crl_sign=True, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    builder = (
        _certificate(subject, subject, key, now - backdated, now + validity)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return _signed(builder, key, key)


def new_leaf(
    authority: Certificate, names: Sequence[str], now: datetime, validity: timedelta, backdated: timedelta
) -> Certificate:
    """Make a server certificate. It expires no later than its authority.

    Args:
        authority: signs the certificate; its key must be known.
        names: host names and IP addresses; the first is the subject.
        now: the current time.
        validity: for how long the certificate is valid from now on.
        backdated: how far in the past its validity begins.
    """
    signing = serialization.load_pem_private_key(authority.key, None)
    assert isinstance(signing, ec.EllipticCurvePrivateKey), "see can_sign"
    key = ec.generate_private_key(ec.SECP256R1())
    begins = max(now - backdated, authority.begins)
    ends = min(now + validity, authority.ends)
    subject = _named(names[0][:64])
    return _server(_certificate(subject, authority.parsed.subject, key, begins, ends), names, key, signing)


def new_self_signed(name: str, now: datetime, validity: timedelta, backdated: timedelta) -> Certificate:
    """Make a server certificate that no authority signs: clients trust this very certificate."""
    key, subject = ec.generate_private_key(ec.SECP256R1()), _unique("orion operator")
    return _server(_certificate(subject, subject, key, now - backdated, now + validity), [name], key, key)


def utc_now() -> datetime:
    """Return the current time. All checks of validity periods use it."""
    return datetime.now(UTC)


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, begins: datetime, ends: datetime
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
    return builder.not_valid_before(begins).not_valid_after(ends)


def _server(
    builder: x509.CertificateBuilder,
    names: Sequence[str],
    key: ec.EllipticCurvePrivateKey,
    signing: ec.EllipticCurvePrivateKey,
) -> Certificate:
    usage = x509.KeyUsage(
        digital_signature=True, key_cert_sign=False, crl_sign=False, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key())
    builder = (
        builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(list(map(_alternative, names))), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(issuer_key, critical=False)
    )
    return _signed(builder, key, signing)


def _signed(
    builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey, signing: ec.EllipticCurvePrivateKey
) -> Certificate:
    private = key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Certificate(builder.sign(signing, hashes.SHA256()).public_bytes(_PEM), private)


def _unique(name: str) -> x509.Name:
    """Add a random number: a TLS library that trusts several certificates looks an issuer up by its subject."""
    return _named(f"{name} {secrets.token_hex(8)}")


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
