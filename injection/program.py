"""Runs a program that gives slots to containers, the device plugin or the DRA driver, as a process of the node."""

import asyncio
import gc
import logging
import os
import socket
import sys
from collections.abc import Callable
from typing import Protocol

from orion.shutdown import Shutdown


class Runs(Protocol):
    """All parts of a program."""

    async def run(self) -> None:
        """Serve until cancelled."""


def node_name() -> str:
    """Return this node's name: $NODE_NAME, which a manifest sets, else the host's."""
    return os.environ.get("NODE_NAME") or socket.gethostname()


def run_until_signal(name: str, make: Callable[[], Runs]) -> None:
    """Serve until SIGTERM or SIGINT. Running containers continue after that.

    Args:
        name: of the program, as its log names it.
        make: makes the program, inside a running event loop.
    """
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", datefmt="%H:%M:%S"
    )
    # The end of a kubelet is no error, but gRPC would log an error with a stack trace for each stream of the kubelet.
    logging.getLogger("grpc").setLevel(logging.CRITICAL)
    asyncio.run(_run(name, make))


async def _run(name: str, make: Callable[[], Runs]) -> None:
    await Shutdown().run(_serve(make), f"{name}: ends; running containers keep their slots")


async def _serve(make: Callable[[], Runs]) -> None:
    program = make()
    # A full collection that looks at all modules takes 25 to 60 ms, in which the kubelet waits for an answer.
    gc.collect()
    gc.freeze()
    await program.run()
