"""This replica's key and certificate. The key is never stored: it is made at the start and lives in memory only.

The certificate is self-signed, and agents trust exactly the certificates in the ConfigMap. So no authority exists
whose key could be stolen, and a replica that has ended cannot be imitated. Rejected: the webhook's certificates. Their
keys are in a Secret, which all replicas of the webhook read, and with cert-manager other programs, too.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_BACKDATED = timedelta(hours=1)
""" The clocks of nodes differ. """
_PEM = serialization.Encoding.PEM


@dataclass(frozen=True)
class Certificate:
    """A certificate with its key, both in PEM."""

    pem: bytes
    key: bytes
    ends: datetime


def new_certificate(name: str, validity: timedelta) -> Certificate:
    """Make a key and a certificate for a host name.

    Its subject is unique: a TLS library that trusts several self-signed certificates looks them up by subject.
    """
    key, serial, now = ec.generate_private_key(ec.SECP256R1()), x509.random_serial_number(), datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"orion operator {serial % 2**64:016x}")])
    ends = now + validity
    builder = (
        x509.CertificateBuilder(issuer_name=subject, subject_name=subject, public_key=key.public_key())
        .serial_number(serial)
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(ends)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    )
    signed = builder.sign(key, hashes.SHA256()).public_bytes(_PEM)
    private = key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Certificate(signed, private, ends)


def end_of(pem: str) -> datetime | None:
    """Return when a certificate ends; None: the text is no certificate."""
    try:
        return x509.load_pem_x509_certificate(pem.encode()).not_valid_after_utc
    except ValueError:
        return None
