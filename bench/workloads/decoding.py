"""Token-by-token generation with a key-value cache: hundreds of small kernels per token, most SMs unused."""

# mypy: disable-error-code="import-not-found, no-untyped-call, misc"
from contextlib import AbstractContextManager
from typing import Any

import torch

from orion.bench.workloads import options as of
from orion.bench.workloads.execution import CALLS_TO_PREPARE, prepare
from orion.bench.workloads.networks.transformer import Decoder, OneToken
from orion.bench.workloads.on_gpu import OnGPU
from orion.bench.workloads.shapes import GPT

ALIGNMENT = 16  # tokens; torch pads a mask of any other length at every launch of attention


class _Decode(OnGPU[of.GptDecode]):
    """A decoder; the CPU launches the network once for each token."""

    unit = "requests"

    def _build(self, options: of.GptDecode) -> None:
        needed = options.prompt + max(options.tokens, CALLS_TO_PREPARE)
        capacity = -(-needed // ALIGNMENT) * ALIGNMENT
        module = OneToken(Decoder(*GPT, length=capacity), options.batch, options.prompt, capacity)
        self._module = module.to(dtype=torch.bfloat16).eval()  # `to` leaves integer tensors as they are
        self._tokens = range(options.tokens)

    def _warm_up(self) -> None:
        self._module.rewind()
        self._launch = prepare(self._module, (), self._options.mode, self._stream, self._place)

    def _mode(self) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = torch.inference_mode()
        return context


class GptDecode(_Decode):
    """Generates like a server: the CPU reads each token before it launches the next."""

    def step(self) -> None:
        """Serve one request, with a wait after each token."""
        launch, mark, token = self._launch, self.trace.mark, self._module.token
        self._module.rewind()
        for _ in self._tokens:
            launch()
            mark()
            token.tolist()  # copies the tokens to the CPU and waits for the copy


class GptDecodeUnsynchronised(_Decode):
    """Queues all tokens of a request on the GPU; the CPU waits once, for the last token."""

    def step(self) -> None:
        """Serve one request, with one wait after the last token."""
        launch, mark = self._launch, self.trace.mark
        self._module.rewind()
        for _ in self._tokens:
            launch()
            mark()
        self._wait()
