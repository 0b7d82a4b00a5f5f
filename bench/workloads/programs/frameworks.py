"""Training by frameworks on top of PyTorch: graph networks in PyTorch Geometric, and Lightning's Trainer."""

# mypy: disable-error-code="import-not-found, no-untyped-call, misc"
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from orion.bench.workloads.programs import options as of
from orion.bench.workloads.programs.driven import refuse_threads
from orion.bench.workloads.programs.trainer import TrainerProgram
from orion.bench.workloads.training import TrainingLoop

CLASSES = 16


class PygTraining(TrainingLoop[of.PygTraining]):
    """A graph convolutional network that classifies the nodes of a random graph."""

    unit = "graphs"

    def _build(self, options: of.PygTraining) -> None:
        import torch_geometric.nn

        super()._build(options)
        layers: list[Any] = []
        for _ in range(options.layers):
            layers += [
                (torch_geometric.nn.GCNConv(options.width, options.width), "nodes, edges -> nodes"),
                nn.ReLU(),
            ]
        self._model = torch_geometric.nn.Sequential("nodes, edges", [*layers, nn.Linear(options.width, CLASSES)])
        self._nodes = torch.randn(options.nodes, options.width)
        self._edges = torch.randint(0, options.nodes, (2, options.edges))
        self._labels = torch.randint(0, CLASSES, (options.nodes,))
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=1e-3)

    def _loss(self) -> Any:
        return nn.functional.cross_entropy(self._model(self._nodes, self._edges), self._labels)


class LightningTraining(TrainerProgram[of.LightningTraining]):
    """Layers with GELU, trained by Lightning's Trainer."""

    unit = "rows"

    def _build(self, options: of.LightningTraining) -> None:
        import pytorch_lightning

        refuse_threads(self._place)
        self.amount = float(options.batch)
        layers: list[nn.Module] = []
        for _ in range(options.layers):
            layers += [nn.Linear(options.width, options.width, bias=False), nn.GELU()]
        batch = torch.randn(options.batch, options.width)

        class Module(pytorch_lightning.LightningModule):
            def __init__(self) -> None:
                super().__init__()
                self.layers = nn.Sequential(*layers)

            def training_step(self, rows: Any, index: int) -> Any:
                return self.layers(rows).float().square().mean()

            def configure_optimizers(self) -> Any:
                return torch.optim.SGD(self.parameters(), lr=1e-3)

        module = Module()
        trainer = pytorch_lightning.Trainer(
            accelerator="auto", devices=1, precision="bf16-mixed", max_epochs=-1, logger=False,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip

        def run(items: Iterator[None]) -> None:
            trainer.fit(module, train_dataloaders=(batch for _ in items))

        self._run = run
