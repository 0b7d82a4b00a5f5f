"""A deterministic trainer of PyTorch: its losses depend on the contents of all of its memory."""

# mypy: disable-error-code="import-not-found, no-untyped-call"
import hashlib
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn

from orion.bench.workload import NoTrace, Trace

_WIDTH, _BATCH = 4096, 1024


class TorchTrainer:
    """Trains a network on data that fill the memory.

    Args:
        mib: the memory that it holds.
    """

    unit, amount = "steps", 1.0

    def __init__(self, mib: int) -> None:
        torch.use_deterministic_algorithms(True)  # needs CUBLAS_WORKSPACE_CONFIG, which `stage` sets
        torch.manual_seed(0)
        self.gpu: str = torch.cuda.get_device_name()
        self.trace: Trace = NoTrace()
        self.details: dict[str, Any] = {"torch": str(torch.__version__), "mib": mib}
        with torch.device("cuda"):
            self._model = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(_WIDTH, _WIDTH), nn.GELU())))
            self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=1e-4)
            self._losses: list[float] = []
            self._data: Any = torch.rand(1, _BATCH, _WIDTH)
            self.step()
            left = mib * (1 << 20) - torch.cuda.memory_reserved()
            self._data = torch.rand(max(1, left // (4 * _BATCH * _WIDTH)), _BATCH, _WIDTH)

    def step(self) -> None:
        """Train on the next part of the data; keep the loss."""
        part = self._data[len(self._losses) % len(self._data)]
        loss = nn.functional.mse_loss(self._model(part), part)
        loss.backward()
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self._losses.append(float(loss))

    def finish(self) -> None:
        """Wait for all queued work."""
        torch.cuda.synchronize()

    def throughout(self) -> AbstractContextManager[Any]:
        """Return a null context."""
        return nullcontext()

    def digest(self) -> str:
        """Return a hash of all losses, bit for bit."""
        return hashlib.sha256(" ".join(loss.hex() for loss in self._losses).encode()).hexdigest()
