"""Certificates for tests, and a TLS server that serves one."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from orion.operator.certificates import issuing
from orion.operator.certificates.issuing import Certificate, new_authority, new_leaf

YEAR, HOUR = timedelta(days=365), timedelta(hours=1)


def made(now: Any = None, validity: timedelta = YEAR) -> tuple[Certificate, Certificate]:
    now = now or issuing.utc_now()
    authority = new_authority(now, validity, HOUR)
    return authority, new_leaf(authority, ["orion-webhook.orion-system.svc", "127.0.0.1"], now, validity, HOUR)


@asynccontextmanager
async def serving(leaf: Certificate, folder: Path) -> AsyncIterator[int]:
    (folder / "leaf.pem").write_bytes(leaf.pem + leaf.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "leaf.pem")
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]
