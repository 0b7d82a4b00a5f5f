"""Programs under torch.compile. Two of its three modes launch CUDA graphs."""

# mypy: disable-error-code="import-not-found, no-untyped-call, misc"
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

from orion.bench.workloads.execution import end_compilers
from orion.bench.workloads.on_gpu import OnGPU
from orion.bench.workloads.programs import options as of
from orion.bench.workloads.training import TrainingLoop

CALLS_TO_COMPILE = 4  # torch.compile captures its graphs in the second or third


class CompiledTraining(TrainingLoop[of.CompiledTraining]):
    """Layers with GELU, forward and backward compiled, SGD."""

    unit = "rows"

    def _build(self, options: of.CompiledTraining) -> None:
        super()._build(options)
        layers: list[nn.Module] = []
        for _ in range(options.layers):
            layers += [nn.Linear(options.width, options.width, bias=False), nn.GELU()]
        self._model = nn.Sequential(*layers).to(dtype=torch.bfloat16)
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=1e-3)
        self._batch = torch.randn(options.batch, options.width, dtype=torch.bfloat16)
        self._forward = torch.compile(self._model, mode=options.mode, dynamic=False)

    def _warm_up(self) -> None:
        for _ in range(CALLS_TO_COMPILE):
            self.step()
        end_compilers()

    def _loss(self) -> Any:
        return self._forward(self._batch).float().square().mean()


class TimmInference(OnGPU[of.TimmInference]):
    """A model of timm that answers requests."""

    unit = "requests"

    def _build(self, options: of.TimmInference) -> None:
        import timm

        self._model = timm.create_model(options.model, pretrained=False).to(torch.bfloat16).eval()
        self._images = torch.randn(options.batch, 3, 224, 224, dtype=torch.bfloat16)
        self._forward = self._model
        if options.mode != "eager":
            self._forward = torch.compile(self._model, mode=options.mode, dynamic=False)

    def _warm_up(self) -> None:
        for _ in range(CALLS_TO_COMPILE):
            self.step()
        end_compilers()

    def _mode(self) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = torch.inference_mode()
        return context

    def step(self) -> None:
        """Serve one request."""
        self._forward(self._images)
        self.trace.mark()
        self._wait()
