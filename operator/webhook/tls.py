"""The server's certificate, taken into the running TLS context whenever its files change.

A context serves the handshakes that begin after a change with the new certificate; connections that are open keep
theirs, so nothing is dropped. Both files are read first and tried on a context of their own: half a change (a new
certificate with the old key) is left for the next look, and a broken file never reaches the running server. Handshakes
run on the event loop, as the change does, so none sees half of it.

Looked at by stat once a second: a secret's files are links that the kubelet exchanges in one step, and watching them
with inotify would need the folder, the link and its target watched, with the same result a little earlier.
"""

import asyncio
import logging
import os
import ssl
from pathlib import Path

from orion.operator.webhook.metrics import Metrics

CERTIFICATE, KEY = "tls.crt", "tls.key"
""" Their names in a folder, as in a Kubernetes secret of type kubernetes.io/tls. """

_log = logging.getLogger(__name__)


class BadCertificate(Exception):
    """Certificate and key cannot be used; the text is a sentence."""


class LiveCertificate:
    """A TLS context whose certificate follows its files.

    Args:
        certificate: a PEM file with the certificate and its chain.
        key: a PEM file with the private key.
        metrics: where loads are counted.

    Raises:
        BadCertificate: the files cannot be used now.
    """

    def __init__(self, certificate: Path, key: Path, metrics: Metrics) -> None:
        self._files = (certificate, key)
        self._metrics = metrics
        self._mark: object = None
        self._failed: object = None
        self.context = _context()
        self._load()

    async def follow(self, interval_s: float = 1.0) -> None:
        """Take in changes until cancelled."""
        while True:
            await asyncio.sleep(interval_s)
            self.refresh()

    def refresh(self) -> bool:
        """Take in the files if they have changed; return whether they were taken."""
        mark = self._look()
        if mark in (self._mark, self._failed):
            return False
        try:
            self._load()
        except BadCertificate as error:
            self._failed = mark  # said once for each state of the files
            self._metrics.certificates.labels("refused").inc()
            _log.warning("the certificate stays as it was: %s", error)
            return False
        _log.info("a new certificate is in use")
        return True

    def _load(self) -> None:
        mark = self._look()
        try:
            content = b"\n".join(file.read_bytes() for file in self._files)
        except OSError as error:
            raise BadCertificate(f"{error.filename} cannot be read: {error.strerror}") from error
        try:
            _take(_context(), content)
            _take(self.context, content)
        except (ssl.SSLError, ValueError) as error:
            names = " and ".join(map(str, self._files))
            raise BadCertificate(f"{names} are no certificate with its key: {error}") from error
        self._mark, self._failed = mark, None
        self._metrics.certificates.labels("taken").inc()

    def _look(self) -> object:
        found: list[object] = []
        for file in self._files:
            try:
                status = file.stat()
                found.append((status.st_ino, status.st_mtime_ns, status.st_size))
            except OSError:
                found.append(None)
        return tuple(found)


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def _take(context: ssl.SSLContext, content: bytes) -> None:
    """Load certificate and key from a file without a name: OpenSSL wants a path, and a key must not lie on a disk."""
    descriptor = os.memfd_create("certificate", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, content)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password=_no_password)
    finally:
        os.close(descriptor)


def _no_password() -> str:
    raise ValueError("the key is encrypted")
