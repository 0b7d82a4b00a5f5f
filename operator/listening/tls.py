"""Loads a certificate with its key from memory into a TLS context."""

import os
import ssl


def load(context: ssl.SSLContext, content: bytes) -> None:
    """Load certificate and key, both in PEM. OpenSSL needs a path, and the key must not be written to a disk.

    Raises:
        ssl.SSLError: the content is no certificate with its key.
        ValueError: the key is encrypted.
    """
    descriptor = os.memfd_create("certificate", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, content)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password=_no_password)
    finally:
        os.close(descriptor)


def _no_password() -> str:
    raise ValueError("the key is encrypted")
