"""Replacements for a machine without a GPU: they only wait for about as long. What they measure is no result."""

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from orion.bench.services.engine import Chunk
from orion.bench.services.scenario import Engine, Service
from orion.bench.services.serving import wait_until

FIRST_MS = {"resnet50": (0.8, 0.08), "bert": (0.7, 0.05), "gpt-decode": (4.0, 0.05), "gpt-prefill": (1.0, 1.0)}
""" Milliseconds of a batch: at no requests, and for each request. """


class FakeModels:
    """Batches that take a time of a formula."""

    gpu = "fake"

    def __init__(self, services: Mapping[str, Service], sizes: Mapping[str, Iterable[int]]) -> None:
        """Args: as for `models.Models`."""
        self._services, self._sizes = services, {name: set(each) for name, each in sizes.items()}

    def execute(self, service: str, size: int) -> None:
        """Wait as long as a batch takes."""
        assert size in self._sizes[service], f"no batch of {size} for {service}"
        base, more = FIRST_MS[self._services[service].model]
        wait_until(time.monotonic() + (base + more * size) / 1e3)

    def throughout(self) -> AbstractContextManager[Any]:
        """Return a context that does nothing."""
        return nullcontext()


class FakeDecoder:
    """Iterations that take the time of a formula."""

    gpu = "fake"

    def __init__(self, settings: Engine) -> None:
        """Args: settings are the engine's."""
        self._decoding = 0
        self._settings = settings

    def restart(self, prompts: Sequence[int]) -> None:
        """Forget all sequences."""

    def place(self, sequences: int, position: int) -> None:
        """Do nothing."""

    def step(self, chunks: Sequence[Chunk], decoding: Sequence[int]) -> None:
        """Wait as long as an iteration takes."""
        tokens = sum(chunk.count for chunk in chunks)
        wait_until(time.monotonic() + (1.0 + 0.002 * tokens + 0.02 * len(decoding)) / 1e3)

    def leave(self, request: int) -> None:
        """Do nothing."""

    def throughout(self) -> AbstractContextManager[Any]:
        """Return a context that does nothing."""
        return nullcontext()
