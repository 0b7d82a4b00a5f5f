"""Loads the server's certificate into the running TLS context whenever its files change.

New handshakes use the new certificate, and open connections go on, so no connection is dropped. The files are first
loaded into a separate TLS context. If certificate and key do not match (a new certificate with the old key) or are
damaged, the running server keeps its certificate until the files change again. Files that cannot be read are tried
again: a lack of descriptors passes. Handshakes and the change run on the same event loop, so no handshake sees a
half-changed context.

The files are checked with stat once a second. The kubelet replaces a Secret's files atomically through a symbolic link.
inotify would need watches on the folder, the link and its target, and would gain only a second.
"""

import asyncio
import logging
import ssl
from pathlib import Path

from orion.errors import Unreadable
from orion.operator.listening.tls import load
from orion.operator.webhook.metrics import Metrics

CERTIFICATE, KEY = "tls.crt", "tls.key"
""" The names of the files in a folder, as in a Kubernetes Secret of type kubernetes.io/tls. """

_log = logging.getLogger(__name__)


class _Damaged(Unreadable):
    """The files can be read, and are no certificate with its key."""


class LiveCertificate:
    """A TLS context whose certificate follows its files.

    Args:
        certificate: a PEM file with the certificate and its chain.
        key: a PEM file with the private key.
        metrics: counts loads.

    Raises:
        Unreadable: the files cannot be read, or are not a certificate with its key.
    """

    def __init__(self, certificate: Path, key: Path, metrics: Metrics) -> None:
        self._files = (certificate, key)
        self._metrics = metrics
        self._mark: object = None
        self._failed: object = None
        """ What the files were when the log said last that they cannot be loaded. """
        self._damaged = False
        """ Whether that stays so until they change. """
        self.context = _context()
        self._load()

    async def follow(self, interval_s: float = 1.0) -> None:
        """Load changed files until cancelled."""
        while True:
            await asyncio.sleep(interval_s)
            self.refresh()

    def refresh(self) -> bool:
        """Load the files if they have changed; return whether a new certificate is in use."""
        mark = self._stat()
        if mark == self._mark or (mark == self._failed and self._damaged):
            return False
        try:
            self._load()
        except Unreadable as error:
            self._damaged = isinstance(error, _Damaged)
            if mark == self._failed:
                return False
            self._failed = mark  # log once for each version of the files
            self._metrics.certificates.labels("refused").inc()
            _log.warning("the webhook continues with its current certificate: %s", error)
            return False
        _log.info("a new certificate is in use")
        return True

    def _load(self) -> None:
        mark = self._stat()
        try:
            content = b"\n".join(file.read_bytes() for file in self._files)
            load(_context(), content)
            load(self.context, content)
        except (ssl.SSLError, ValueError) as error:
            names = " and ".join(map(str, self._files))
            raise _Damaged(f"{names} are no certificate with its key: {error}") from error
        except OSError as error:
            raise Unreadable(f"{error.filename or self._files[0]} cannot be read: {error.strerror}") from error
        self._mark, self._failed = mark, None
        self._metrics.certificates.labels("taken").inc()

    def _stat(self) -> object:
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
