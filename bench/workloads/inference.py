"""Inference requests: for each request, the CPU launches the network once and waits once for the result."""

# mypy: disable-error-code="import-not-found, no-untyped-call, misc"
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import torch
from torch import nn

from orion.bench.workloads import options as of
from orion.bench.workloads.execution import prepare
from orion.bench.workloads.networks.convolutional import MobileNetV2, ResNet50
from orion.bench.workloads.networks.transformer import Decoder, Encoder, Prefill, SequenceClassifier
from orion.bench.workloads.on_gpu import OnGPU
from orion.bench.workloads.shapes import BERT_BASE, GPT

InferenceT = TypeVar("InferenceT", bound=of.Inference)


class _Inference(OnGPU[InferenceT], Generic[InferenceT]):
    """A network that is launched once for each request."""

    unit = "requests"
    _autocast = False

    @abstractmethod
    def _network(self, options: InferenceT) -> tuple[nn.Module, tuple[Any, ...]]:
        """Return the network and its inputs."""

    def _build(self, options: InferenceT) -> None:
        module, self._inputs = self._network(options)
        self._module = module.eval()

    def _warm_up(self) -> None:
        self._launch = prepare(self._module, self._inputs, self._options.mode, self._stream, self._place)

    @contextmanager
    def _mode(self) -> Iterator[None]:
        # autocast's cache of converted weights is off: a graph capture would fill the cache with tensors of the graph,
        # and later calls outside of the graph would read these tensors.
        mixed = torch.autocast("cuda", torch.bfloat16, enabled=self._autocast, cache_enabled=False)
        with torch.inference_mode(), mixed:
            yield

    def step(self) -> None:
        """Serve one request."""
        self._launch()
        self.trace.mark()
        self._wait()


def _images(batch: int, kind: torch.dtype) -> Any:
    return torch.randn(batch, 3, 224, 224, dtype=kind).to(memory_format=torch.channels_last)


class ResNet50Inference(_Inference[of.ResNet50Inference]):
    """ResNet-50, channels last."""

    def _network(self, options: of.ResNet50Inference) -> tuple[nn.Module, tuple[Any, ...]]:
        self._autocast = options.precision == "autocast"
        kind = torch.bfloat16 if options.precision == "bf16" else torch.float32
        return ResNet50().to(dtype=kind, memory_format=torch.channels_last), (_images(options.batch, kind),)


class MobileNetV2Inference(_Inference[of.Convolutional]):
    """MobileNetV2, channels last, bf16."""

    def _network(self, options: of.Convolutional) -> tuple[nn.Module, tuple[Any, ...]]:
        network = MobileNetV2().to(dtype=torch.bfloat16, memory_format=torch.channels_last)
        return network, (_images(options.batch, torch.bfloat16),)


class BertInference(_Inference[of.BertInference]):
    """BERT-base as a classifier of sequences, bf16."""

    def _network(self, options: of.BertInference) -> tuple[nn.Module, tuple[Any, ...]]:
        network = SequenceClassifier(*BERT_BASE, length=options.length).to(dtype=torch.bfloat16)
        return network, (torch.randint(0, Encoder.VOCABULARY, (options.batch, options.length)),)


class GptPrefill(_Inference[of.GptPrefill]):
    """A decoder that reads prompts into its caches and returns the first token of each, bf16."""

    def _network(self, options: of.GptPrefill) -> tuple[nn.Module, tuple[Any, ...]]:
        decoder = Decoder(*GPT, length=options.length)
        network = Prefill(decoder, options.batch, options.length).to(dtype=torch.bfloat16)
        return network, (torch.randint(0, Decoder.VOCABULARY, (options.batch, options.length)),)
