"""Makes and reads certificates: authorities, and the leaf that the webhook shows.

Keys are ECDSA P-256: small, made in a millisecond, and known to every TLS library. Each authority has a name of its
own, for verifiers that look issuers up by name meet two of them in one bundle.
"""

import functools
import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_BLOCK = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_PEM = serialization.Encoding.PEM
_DAMAGED = (
    ValueError, TypeError, UnsupportedAlgorithm,
    x509.DuplicateExtension, x509.InvalidVersion, x509.UnsupportedGeneralNameType,
)  # fmt: skip
"""What the library raises at certificates that are none, or are of a kind that it does not know."""


class Unreadable(Exception):
    """It is no certificate, or its key is another's; the text says which."""


@dataclass(frozen=True)
class Certificate:
    """A certificate, with its private key where that is known.

    Args:
        pem: of the certificate.
        key: PEM of its private key; empty: not known.
    """

    pem: bytes
    key: bytes = b""

    @functools.cached_property
    def parsed(self) -> x509.Certificate:
        """The certificate as the library has it."""
        return x509.load_pem_x509_certificate(self.pem)

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256 in hexadecimal digits: what tells certificates apart."""
        return self.parsed.fingerprint(hashes.SHA256()).hex()

    @functools.cached_property
    def der(self) -> bytes:
        """The certificate as TLS sends it."""
        return self.parsed.public_bytes(serialization.Encoding.DER)

    @property
    def ends(self) -> datetime:
        """The moment after which nobody takes it."""
        return self.parsed.not_valid_after_utc

    @functools.cached_property
    def names(self) -> frozenset[str]:
        """Host names and addresses that it is for."""
        try:
            found = self.parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except x509.ExtensionNotFound:
            return frozenset()
        addresses = map(str, found.get_values_for_type(x509.IPAddress))
        return frozenset((*found.get_values_for_type(x509.DNSName), *addresses))

    @functools.cached_property
    def is_authority(self) -> bool:
        """Whether it may sign others, and is whole: its own signature is right."""
        try:
            may_sign = self.parsed.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        except x509.ExtensionNotFound:
            return False
        return may_sign and self.signed(self)

    def holds(self, now: datetime) -> bool:
        """Return whether a verifier takes it at this time, as far as time goes."""
        return self.parsed.not_valid_before_utc <= now <= self.ends

    def can_sign(self, now: datetime) -> bool:
        """Return whether it is an authority whose key is here, at this time."""
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
        """Return it as others may have it."""
        return Certificate(self.pem)


def read(pem: bytes, key: bytes = b"") -> Certificate:
    """Return a certificate that was written as PEM.

    Raises:
        Unreadable: it is none, or the key is not its key.
    """
    found = Certificate(pem, key)
    try:
        public = found.parsed.public_key()
        private = serialization.load_pem_private_key(key, None) if key else None
        _ = found.names, found.is_authority, found.parsed.subject  # read now, for they may be damaged
    except _DAMAGED as error:
        raise Unreadable(str(error).split("\n")[0]) from error
    if private is not None and private.public_key() != public:
        raise Unreadable("the key is another certificate's")
    return found


def read_bundle(text: bytes) -> tuple[Certificate, ...]:
    """Return the certificates of a bundle, without whatever else is in it."""
    found = []
    for block in _BLOCK.findall(text):
        try:
            found.append(read(block + b"\n"))
        except Unreadable:
            continue
    return tuple(found)


def write_bundle(certificates: Iterable[Certificate]) -> bytes:
    """Return a bundle as PEM; the same certificates give the same bytes."""
    return b"".join(each.pem.strip() + b"\n" for each in certificates)


def new_authority(now: datetime, validity: timedelta, backdated: timedelta) -> Certificate:
    """Make an authority that signs leaves and nothing below them."""
    key = ec.generate_private_key(ec.SECP256R1())
    public, serial = key.public_key(), x509.random_serial_number()
    subject = _named(f"orion webhook authority {serial % 2**32:08x}")
    usage = x509.KeyUsage(
        digital_signature=False, key_cert_sign=True, crl_sign=True, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    builder = (
        _certificate(subject, subject, public, now - backdated, now + validity)
        .serial_number(serial)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )
    return Certificate(builder.sign(key, hashes.SHA256()).public_bytes(_PEM), _key_pem(key))


def new_leaf(
    authority: Certificate, names: Sequence[str], now: datetime, validity: timedelta, backdated: timedelta
) -> Certificate:
    """Make a server's certificate; it ends no later than its authority.

    Args:
        authority: with its key.
        names: host names and addresses; the first is its subject.
        now: the time.
        validity: how long it holds from now.
        backdated: how long it has held already.
    """
    signing = serialization.load_pem_private_key(authority.key, None)
    assert isinstance(signing, ec.EllipticCurvePrivateKey), "see can_sign"
    key = ec.generate_private_key(ec.SECP256R1())
    begins = max(now - backdated, authority.parsed.not_valid_before_utc)
    ends = min(now + validity, authority.ends)
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key())
    usage = x509.KeyUsage(
        digital_signature=True, key_cert_sign=False, crl_sign=False, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    builder = (
        _certificate(_named(names[0][:64]), authority.parsed.subject, key.public_key(), begins, ends)
        .serial_number(x509.random_serial_number())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(list(map(_alternative, names))), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(issuer_key, critical=False)
    )
    return Certificate(builder.sign(signing, hashes.SHA256()).public_bytes(_PEM), _key_pem(key))


def utc_now() -> datetime:
    """Return the time by which certificates are judged."""
    return datetime.now(UTC)


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, begins: datetime, ends: datetime
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder(issuer_name=issuer, subject_name=subject, public_key=key)
    return builder.not_valid_before(begins).not_valid_after(ends)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
