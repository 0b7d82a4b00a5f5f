"""Token-by-token generation with a cache of keys and values: hundreds of small kernels a token, most SMs unused."""

# mypy: disable-error-code="import-not-found, no-untyped-call, misc"
from contextlib import AbstractContextManager
from typing import Any

import torch

from orion.bench.workloads import options as of
from orion.bench.workloads.execution import CALLS_TO_PREPARE, prepare
from orion.bench.workloads.networks.transformer import Decoder, OneToken
from orion.bench.workloads.on_gpu import OnGPU
from orion.bench.workloads.shapes import GPT

ALIGNMENT = 16  # tokens; attention kernels pad a mask of another length at every launch


class _Decode(OnGPU[of.GptDecode]):
    """The network, and one launch a token."""

    unit = "requests"

    def _build(self, options: of.GptDecode) -> None:
        needed = options.prompt + max(options.tokens, CALLS_TO_PREPARE)
        room = -(-needed // ALIGNMENT) * ALIGNMENT
        module = OneToken(Decoder(*GPT, length=room), options.batch, options.prompt, room)
        self._module = module.to(dtype=torch.bfloat16).eval()  # whole numbers stay as they are
        self._tokens = range(options.tokens)

    def _warm_up(self) -> None:
        self._module.rewind()
        self._launch = prepare(self._module, (), self._options.mode, self._stream, self._place)

    def _mode(self) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = torch.inference_mode()
        return context


class GptDecode(_Decode):
    """As a server generates: each token comes to the CPU before the next one is asked for."""

    def step(self) -> None:
        """Serve one request: its tokens, each waited for."""
        launch, mark, token = self._launch, self.trace.mark, self._module.token
        self._module.rewind()
        for _ in self._tokens:
            launch()
            mark()
            token.tolist()  # copies to the CPU, and waits for that copy


class GptDecodeUnsynchronised(_Decode):
    """The tokens of a request follow each other on the GPU; the CPU waits once, for the last one."""

    def step(self) -> None:
        """Serve one request: its tokens, queued."""
        launch, mark = self._launch, self.trace.mark
        self._module.rewind()
        for _ in self._tokens:
            launch()
            mark()
        self._wait()
