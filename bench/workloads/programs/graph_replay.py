"""Replay of a long CUDA graph: inference engines replay one for each token, of 10 to 40 ms."""

# mypy: disable-error-code="import-not-found, no-untyped-call"
import ctypes

import torch

from orion.bench.workloads.graph_updates import GraphUpdates
from orion.bench.workloads.on_gpu import OnGPU
from orion.bench.workloads.programs import options as of

DIFFERENT_WEIGHTS = 16  # layers share weights, so a graph of any length needs little memory


class DecodeGraph(OnGPU[of.DecodeGraph]):
    """A chain of products and activations, captured once. The CPU waits for each replay, like an engine for a token."""

    unit = "replays"

    def _build(self, options: of.DecodeGraph) -> None:
        shape = (options.width, options.width)
        self._weights = [
            torch.randn(shape, dtype=torch.bfloat16) / options.width**0.5 for _ in range(DIFFERENT_WEIGHTS)
        ]
        self._state = torch.randn(options.batch, options.width, dtype=torch.bfloat16)
        self._product = torch.empty_like(self._state)
        self._next = torch.empty_like(self._state)

    def _layers(self) -> None:
        """Launch all layers; each reads what the last one wrote, so no kernel can overlap another."""
        state = self._state
        for number in range(self._options.layers):
            torch.mm(state, self._weights[number % DIFFERENT_WEIGHTS], out=self._product)
            torch.tanh(self._product, out=self._next)
            state = self._next

    def _warm_up(self) -> None:
        side = self._stream or torch.cuda.Stream()  # the default stream cannot capture
        with torch.inference_mode(), torch.cuda.stream(side):
            self._layers()
        torch.cuda.synchronize()
        self._graph = torch.cuda.CUDAGraph(keep_graph=True)
        mode = "thread_local" if self._place.one_of_several else "global"
        with torch.inference_mode(), torch.cuda.graph(self._graph, stream=side, capture_error_mode=mode):
            self._layers()
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
