"""Three ways to launch a network: kernel by kernel, as a CUDA graph, or compiled by torch.compile."""

# mypy: disable-error-code="import-not-found, no-untyped-call, misc"
import contextlib
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from orion.bench.workload import Place

CALLS_TO_PREPARE = 4  # `prepare` calls the network at most four times: three times to warm up, once to capture
Launch = Callable[[], object]
"""Launches a network once on the current stream, with the same input and output tensors each time."""


class Captured:
    """A CUDA graph of one call, and the tensors that the graph reads and writes."""

    def __init__(self, module: nn.Module, inputs: tuple[Any, ...], stream: Any, place: Place) -> None:
        """Capture on the workload's stream, because a node keeps the priority of the stream that captured the node.

        Args:
            module: The network.
            inputs: Its arguments.
            stream: A torch stream; None: a new stream, because the default stream cannot capture.
            place: Says whether other threads of the process have workloads, and may call CUDA during the capture.
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
        """Replay the graph."""
        self._graph.replay()


def prepare(module: nn.Module, inputs: tuple[Any, ...], mode: str, stream: Any, place: Place) -> Launch:
    """Return a function that launches the module with these inputs.

    Args:
        module: The network.
        inputs: Its arguments, on the GPU.
        mode: "graph", "eager" or "compile".
        stream: As for `Captured`.
        place: As for `Captured`.
    """
    if mode == "graph":
        return Captured(module, inputs, stream, place)
    if mode == "eager":
        return functools.partial(module, *inputs)
    compiled = torch.compile(module, dynamic=False)
    compiled(*inputs)
    end_compilers()
    return functools.partial(compiled, *inputs)


def end_compilers() -> None:
    """End torch.compile's worker processes: no further compilation follows, and they use CPU time."""
    with contextlib.suppress(ImportError, AttributeError):  # private in torch: if a later torch lacks it, workers stay
        from torch._inductor.async_compile import shutdown_compile_workers

        shutdown_compile_workers()
