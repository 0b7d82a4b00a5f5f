"""The services as CUDA graphs: one network for each service, one graph for each size of a batch.

The kinds of `bench/workloads` were not used as they are: each of them builds a network of its own for one size, so a
process with all sizes of four services would hold dozens of networks. On a CPU, the networks are tiny and run eagerly.
"""

# mypy: disable-error-code="import-not-found, no-untyped-call, misc"
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from orion.bench.services.scenario import Service
from orion.bench.workload import Place
from orion.bench.workloads.execution import CALLS_TO_PREPARE, Captured
from orion.bench.workloads.networks.convolutional import ResNet50
from orion.bench.workloads.networks.transformer import Decoder, Encoder, OneToken, Prefill, SequenceClassifier
from orion.bench.workloads.shapes import BERT_BASE, GPT

TINY = (2, 64, 4)
ALIGNMENT = 16  # tokens; torch pads a mask of any other length
WARM_UP = 3

Run = Callable[[], None]


class Models:
    """All services of a process; `execute` runs one batch and waits for it."""

    def __init__(self, services: Mapping[str, Service], sizes: Mapping[str, Iterable[int]], device: str) -> None:
        """Build the networks, capture the graphs and run each of them.

        Args:
            services: The services by name.
            sizes: The sizes of batches, by service.
            device: `cuda` or `cpu`.
        """
        torch.manual_seed(0)
        self._device = device
        torch.set_num_threads(1)
        torch.backends.cudnn.benchmark = False
        torch.backends.cuda.enable_cudnn_sdp(False)  # it compiles a plan for each shape
        torch.backends.cudnn.allow_tf32 = True
        torch.backends.cuda.matmul.allow_tf32 = True
        self.gpu = torch.cuda.get_device_name() if device == "cuda" else "CPU"
        self._stream = torch.cuda.Stream() if device == "cuda" else None
        self._runs: dict[tuple[str, int], Run] = {}
        with torch.inference_mode(), torch.cuda.stream(self._stream), torch.device(device):
            for name, service in services.items():
                make = self._maker(service)
                for size in sorted(sizes[name], reverse=True):
                    self._runs[name, size] = make(size)
            for run in self._runs.values():
                for _ in range(WARM_UP):
                    run()
                self._wait()

    def execute(self, service: str, size: int) -> None:
        """Run one batch of `size` requests and wait until it is complete."""
        self._runs[service, size]()
        self._wait()

    def throughout(self) -> Any:
        """Return the context in which batches run."""
        return torch.cuda.stream(self._stream)

    def _wait(self) -> None:
        if self._stream is not None:
            self._stream.synchronize()

    def _maker(self, service: Service) -> Callable[[int], Run]:
        tiny = self._device == "cpu"
        kind = torch.bfloat16
        length = service.length
        if service.model == "resnet50":
            resnet = ResNet50().to(dtype=kind, memory_format=torch.channels_last).eval()
            side = 32 if tiny else 224
            return lambda size: self._prepare(
                resnet, (torch.randn(size, 3, side, side, dtype=kind).to(memory_format=torch.channels_last),)
            )
        if service.model == "bert":
            bert = SequenceClassifier(*(TINY if tiny else BERT_BASE), length=length).to(dtype=kind).eval()
            return lambda size: self._prepare(bert, (torch.randint(0, Encoder.VOCABULARY, (size, length)),))
        capacity = -(-(length + max(service.tokens, CALLS_TO_PREPARE)) // ALIGNMENT) * ALIGNMENT
        decoder = Decoder(*(TINY if tiny else GPT), length=capacity).to(dtype=kind).eval()
        if service.model == "gpt-prefill":
            return lambda size: self._prepare(
                Prefill(decoder, size, length).to(dtype=kind).eval(),
                (torch.randint(0, Decoder.VOCABULARY, (size, length)),),
            )
        return lambda size: self._generator(
            OneToken(decoder, size, length, capacity).to(dtype=kind).eval(), service.tokens
        )

    def _prepare(self, module: Any, inputs: tuple[Any, ...]) -> Run:
        if self._stream is not None:
            return Captured(module, inputs, self._stream, Place())

        def run() -> None:
            with torch.inference_mode():
                module(*inputs)

        return run

    def _generator(self, module: Any, tokens: int) -> Run:
        module.rewind()
        one = self._prepare(module, ())
        rewind, count = module.rewind, range(tokens)

        def run() -> None:
            with torch.inference_mode():
                rewind()
                for _ in count:
                    one()

        return run
