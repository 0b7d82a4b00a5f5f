"""Replay of a long CUDA graph: inference engines replay one for each token, of 10 to 40 ms."""

# mypy: disable-error-code="import-not-found, no-untyped-call"
import ctypes
from collections.abc import Sequence

import torch

from orion.bench.workloads.graph_updates import GraphUpdates
from orion.bench.workloads.on_gpu import OnGPU
from orion.bench.workloads.programs import options as of

DIFFERENT_WEIGHTS = 16  # layers share weights, so a graph of any length needs little memory


class _Chain:
    def __init__(self, options: of.DecodeGraph) -> None:
        self._state = torch.randn(options.batch, options.width, dtype=torch.bfloat16)
        self._product = torch.empty_like(self._state)
        self._next = torch.empty_like(self._state)

    def launch(self, weights: Sequence[torch.Tensor], layers: int) -> None:
        """Launch all layers; each reads what the last one wrote, so no kernel of the chain can overlap another."""
        state = self._state
        for number in range(layers):
            torch.mm(state, weights[number % len(weights)], out=self._product)
            torch.tanh(self._product, out=self._next)
            state = self._next


class DecodeGraph(OnGPU[of.DecodeGraph]):
    """Chains of products and activations, captured once. The CPU waits for each replay, like an engine for a token."""

    unit = "replays"

    def _build(self, options: of.DecodeGraph) -> None:
        shape = (options.width, options.width)
        self._weights = [
            torch.randn(shape, dtype=torch.bfloat16) / options.width**0.5 for _ in range(DIFFERENT_WEIGHTS)
        ]
        self._chains = [_Chain(options) for _ in range(options.branches)]

    def _all_chains(self) -> None:
        """Launch the chains, each but the first in a stream of its own; a captured graph has a branch for each."""
        first = torch.cuda.current_stream()
        others = [torch.cuda.Stream() for _ in self._chains[1:]]
        for stream in others:
            stream.wait_stream(first)
        for stream, chain in zip([first, *others], self._chains, strict=True):
            with torch.cuda.stream(stream):
                chain.launch(self._weights, self._options.layers)
        for stream in others:
            first.wait_stream(stream)

    def _warm_up(self) -> None:
        side = self._stream or torch.cuda.Stream()  # the default stream cannot capture
        with torch.inference_mode(), torch.cuda.stream(side):
            self._all_chains()
        torch.cuda.synchronize()
        self._graph = torch.cuda.CUDAGraph(keep_graph=True)
        mode = "thread_local" if self._place.one_of_several else "global"
        with torch.inference_mode(), torch.cuda.graph(self._graph, stream=side, capture_error_mode=mode):
            self._all_chains()
        self._graph.instantiate()
        raw, executable = self._graph.raw_cuda_graph(), self._graph.raw_cuda_graph_exec()
        self._updates = GraphUpdates(ctypes.c_void_p(raw), ctypes.c_void_p(executable))
        self.details |= {"kernels": self._updates.kernels, "nodes": self._updates.nodes}

    def step(self) -> None:
        """Replay the graph and wait for it."""
        if self._options.updated:
            self._updates.apply()
        self._graph.replay()
        self.trace.mark()
        self._wait()
