"""Training loops: forward, backward, optimizer; bf16 autocast. Data stays on the GPU.

A real input pipeline was rejected: it would measure the machine's CPUs. To imitate a slow data loader, the loop waits
for its queued steps and then sleeps for a given part of an iteration.
"""

# mypy: disable-error-code="import-not-found, no-untyped-call, misc"
import time
from abc import abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Generic, TypeVar

import torch
import torch.distributed
from torch import nn

from orion.bench.workload import Place, Trace
from orion.bench.workloads import options as of
from orion.bench.workloads import ranks
from orion.bench.workloads.networks.convolutional import ResNet50
from orion.bench.workloads.networks.transformer import Decoder, MaskedLanguageModel
from orion.bench.workloads.on_gpu import OnGPU
from orion.bench.workloads.shapes import BERT_WIDE, GPT

TrainingT = TypeVar("TrainingT", bound=of.Training)
DataParallelT = TypeVar("DataParallelT", bound=of.DataParallelTraining)


class TrainingLoop(OnGPU[TrainingT], Generic[TrainingT]):
    """A training loop that uses the same batch in each step."""

    _model: nn.Module
    _optimizer: Any
    _stall_seconds = 0.0

    @abstractmethod
    def _loss(self) -> Any:
        """Run the forward pass; return the loss."""

    def _build(self, options: TrainingT) -> None:
        self.amount = float(options.batch)

    def _calibrate(self) -> None:
        options = self._options
        if options.stall_ms is not None:
            self._stall_seconds = options.stall_ms / 1e3
        elif options.stall:
            work_ms = self._milliseconds()
            self._stall_seconds = work_ms * options.stall / (1 - options.stall) / 1e3
            self.details["work_ms"] = round(work_ms, 3)
        self.details["stall_ms"] = round(self._stall_seconds * 1e3, 3)

    def _mode(self) -> AbstractContextManager[Any]:
        if not self._place.one_of_several:
            return nullcontext()
        # torch has one backward thread for the whole process. Each launch has to come from its client's own thread.
        context: AbstractContextManager[Any] = torch.autograd.set_multithreading_enabled(False)
        return context

    def step(self) -> None:
        """Sleep for the input stall, if any, then queue one training step."""
        if self._stall_seconds:
            while self._queued:
                self._queued.popleft().synchronize()
            time.sleep(self._stall_seconds)
        self._loss().backward()
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self.trace.mark()
        if self._options.sync_each_step:
            self._wait()
        else:
            self._queue_step()


class DataParallelLoop(TrainingLoop[DataParallelT], Generic[DataParallelT]):
    """A training loop that may be one of several ranks, which sum their gradients over NCCL; see `ranks`."""

    def __init__(self, options: DataParallelT, place: Place) -> None:
        """Join the other ranks, if there are any, on a GPU of its own; then as `OnGPU`."""
        if options.ranks > 1:
            torch.cuda.set_device(ranks.index())
            torch.distributed.init_process_group("nccl", device_id=torch.device("cuda", ranks.index()))
        super().__init__(options, place)

    def _warm_up(self) -> None:
        if self._options.ranks > 1:
            self._model = nn.parallel.DistributedDataParallel(self._model, device_ids=[ranks.index()])


class ResNet50Training(DataParallelLoop[of.ResNet50Training]):
    """ResNet-50: SGD with momentum, channels last."""

    unit = "images"

    def _build(self, options: of.ResNet50Training) -> None:
        super()._build(options)
        self._model = ResNet50().to(memory_format=torch.channels_last)
        self._images = torch.randn(options.batch, 3, 224, 224).to(memory_format=torch.channels_last)
        self._labels = torch.randint(0, 1000, (options.batch,))
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=0.01, momentum=0.9)
        if options.traced:
            mark_layers(self._model, self.trace)

    def _loss(self) -> Any:
        with torch.autocast("cuda", torch.bfloat16):
            return nn.functional.cross_entropy(self._model(self._images), self._labels)


class BertTraining(DataParallelLoop[of.BertTraining]):
    """BERT as a masked language model that predicts 15 % of the words, AdamW."""

    unit = "sequences"

    def _build(self, options: of.BertTraining) -> None:
        super()._build(options)
        batch, length, words = options.batch, options.length, MaskedLanguageModel.VOCABULARY
        masked = length * 15 // 100
        self._model = MaskedLanguageModel(*BERT_WIDE, length=length)
        self._tokens = torch.randint(0, words, (batch, length))
        self._positions = torch.randint(0, length, (batch, masked))
        self._labels = torch.randint(0, words, (batch * masked,))
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=1e-5, fused=True)

    def _loss(self) -> Any:
        with torch.autocast("cuda", torch.bfloat16):
            scores = self._model(self._tokens, self._positions)
            return nn.functional.cross_entropy(scores.float().flatten(0, 1), self._labels)


class GptTraining(DataParallelLoop[of.GptTraining]):
    """A decoder trained to predict each next token, AdamW."""

    unit = "sequences"

    def _build(self, options: of.GptTraining) -> None:
        super()._build(options)
        self._model = Decoder(*GPT, length=options.length)
        text = torch.randint(0, Decoder.VOCABULARY, (options.batch, options.length + 1))
        self._tokens, self._labels = text[:, :-1].contiguous(), text[:, 1:].flatten()
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=1e-5, fused=True)

    def _loss(self) -> Any:
        with torch.autocast("cuda", torch.bfloat16):
            scores = self._model(self._tokens)
            return nn.functional.cross_entropy(scores.float().flatten(0, 1), self._labels)


def mark_layers(model: nn.Module, trace: Trace) -> None:
    """Mark the trace after every layer, forward and backward; the pieces are short enough to show waits at the gate."""

    def after(*_: object) -> None:
        trace.mark()

    for layer in model.modules():
        if not list(layer.children()):
            layer.register_forward_hook(after)
            layer.register_full_backward_hook(after)
