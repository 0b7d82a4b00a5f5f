"""A certificate authority for one control plane: it issues the certificates of servers and clients.

Keys are ECDSA P-256, which takes a millisecond to make; RSA would take longer than the rest of a start. Certificates
are valid for a year, and from one hour ago in case clocks differ.
"""

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


@dataclass(frozen=True)
class Issued:
    """A certificate and its key, as PEM."""

    certificate: bytes
    key: bytes

    def write(self, folder: Path, name: str) -> tuple[Path, Path]:
        """Write `name`.crt and `name`.key, the key readable by its owner alone; return their paths."""
        folder.mkdir(parents=True, exist_ok=True)
        certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
        certificate.write_bytes(self.certificate)
        key.touch(mode=0o600)
        key.write_bytes(self.key)
        return certificate, key


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a private key as PEM, not encrypted."""
    no_password = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, no_password)


def public_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a key's public half as PEM."""
    return key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def new_key() -> ec.EllipticCurvePrivateKey:
    """Make a private key."""
    return ec.generate_private_key(ec.SECP256R1())


def _subject(name: str, groups: Sequence[str] = ()) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _certificate(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder(issuer_name=issuer, subject_name=subject, public_key=key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=365))
    )


class Authority:
    """Issues certificates of the authority in `folder` (ca.crt, ca.key); makes the authority if it does not exist."""

    def __init__(self, folder: Path, name: str = "orion-test-authority") -> None:
        self.certificate_path, self.key_path = folder / "ca.crt", folder / "ca.key"
        if not self.key_path.exists():
            self._make(name).write(folder, "ca")
        self.certificate = self.certificate_path.read_bytes()
        loaded = serialization.load_pem_private_key(self.key_path.read_bytes(), None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey)
        self._key = loaded
        self._name = x509.load_pem_x509_certificate(self.certificate).subject

    @staticmethod
    def _make(name: str) -> Issued:
        key, subject = new_key(), _subject(name)
        builder = _certificate(subject, subject, key.public_key()).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        usage = x509.KeyUsage(
            digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False, key_encipherment=False,
            data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
        )  # fmt: skip
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        builder = builder.add_extension(usage, critical=True).add_extension(identifier, critical=False)
        return Issued(builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM), key_pem(key))

    def client(self, user: str, groups: Sequence[str] = ()) -> Issued:
        """Issue a client certificate; the API server reads the user from its common name and the groups from O."""
        return self._issue(_subject(user, groups), [x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])])

    def server(self, name: str, hosts: Sequence[str]) -> Issued:
        """Issue a server certificate for host names and addresses; it is valid for clients too, as etcd requires."""
        alternatives: list[x509.GeneralName] = []
        for host in hosts:
            try:
                alternatives.append(x509.IPAddress(ipaddress.ip_address(host)))
            except ValueError:
                alternatives.append(x509.DNSName(host))
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        return self._issue(_subject(name), [usage, x509.SubjectAlternativeName(alternatives)])

    def _issue(self, subject: x509.Name, extensions: Sequence[x509.ExtensionType]) -> Issued:
        key = new_key()
        builder = _certificate(subject, self._name, key.public_key())
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        for extension in (*extensions, authority):
            builder = builder.add_extension(extension, critical=False)
        signed = builder.sign(self._key, hashes.SHA256())
        return Issued(signed.public_bytes(serialization.Encoding.PEM), key_pem(key))
