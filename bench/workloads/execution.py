"""How a network is launched: kernel by kernel, as a CUDA graph, or as torch.compile makes it."""

# mypy: disable-error-code="import-not-found, no-untyped-call, misc"
import contextlib
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from orion.bench.workload import Place

CALLS_TO_PREPARE = 4  # at most: warm-up and capture
Launch = Callable[[], object]
"""Launches a network once on the current stream; inputs and outputs stay in the same places."""


class Captured:
    """A CUDA graph of one call, and everything that it reads and writes."""

    def __init__(self, module: nn.Module, inputs: tuple[Any, ...], stream: Any, place: Place) -> None:
        """Capture on the stream of the work: a node keeps the priority that it was captured with.

        Args:
            module: What is called.
            inputs: With what.
            stream: torch's; None: capture needs one beside the default stream.
            place: Other threads may go on meanwhile if it is shared.
        """
        side = stream or torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(CALLS_TO_PREPARE - 1):
                module(*inputs)
        torch.cuda.current_stream().wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        mode = "thread_local" if place.one_of_several else "global"
        with torch.cuda.graph(self._graph, stream=side, capture_error_mode=mode):
            answer = module(*inputs)
        self._kept_alive = (module, inputs, answer)

    def __call__(self) -> None:
        """Replay."""
        self._graph.replay()


def prepare(module: nn.Module, inputs: tuple[Any, ...], mode: str, stream: Any, place: Place) -> Launch:
    """Return what launches the module with these inputs.

    Args:
        module: The network.
        inputs: Its arguments, on the GPU.
        mode: "graph", "eager" or "compile".
        stream: As `Captured` takes it.
        place: As `Captured` takes it.
    """
    if mode == "graph":
        return Captured(module, inputs, stream, place)
    if mode == "eager":
        return functools.partial(module, *inputs)
    compiled = torch.compile(module, dynamic=False)
    compiled(*inputs)
    _end_compilers()
    return functools.partial(compiled, *inputs)


def _end_compilers() -> None:
    """End the processes that torch.compile keeps for its next time: there is none, and they share the CPUs."""
    with contextlib.suppress(ImportError, AttributeError):  # a private name of torch's; without it they stay, idle
        from torch._inductor.async_compile import shutdown_compile_workers

        shutdown_compile_workers()
