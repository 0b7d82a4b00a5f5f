"""Kernels without a model: what makes sharing hard, one thing at a time."""

# mypy: disable-error-code="import-not-found, no-untyped-call"
import time
from typing import Any, Generic, TypeVar

import torch

from orion.bench.workloads import options as of
from orion.bench.workloads.on_gpu import OnGPU
from orion.bench.workloads.spinning import SpinKernel

BLOCK = 1024  # threads, the most that a block may have
FIRST_ROUNDS = 100_000  # of a spinning kernel that is to be calibrated: some milliseconds
LongKernelT = TypeVar("LongKernelT", bound=of.LongKernel)


class Gemm(OnGPU[of.Gemm]):
    """Square bf16 matrix products back to back: they fill the GPU, and long ones cannot be interrupted."""

    unit = "products"

    def _build(self, options: of.Gemm) -> None:
        self.amount = float(options.products)
        self._left = torch.randn(options.size, options.size, dtype=torch.bfloat16)
        self._right = torch.randn(options.size, options.size, dtype=torch.bfloat16)
        self._product = torch.empty_like(self._left)
        self._times = range(options.products)

    def step(self) -> None:
        """Launch the products and wait for them."""
        for _ in self._times:
            torch.mm(self._left, self._right, out=self._product)
            self.trace.mark()
        self._wait()


class Elementwise(OnGPU[of.Elementwise]):
    """A large tensor is read and written: memory bandwidth, in short blocks."""

    unit = "passes"

    def _build(self, options: of.Elementwise) -> None:
        self.amount = float(options.passes)
        self._tensor = torch.ones(options.mib << 18, dtype=torch.float32)
        self._times = range(options.passes)

    def step(self) -> None:
        """Launch the passes and wait for them."""
        for _ in self._times:
            self._tensor.mul_(1.0)
            self.trace.mark()
        self._wait()


class _Spinning(OnGPU[LongKernelT], Generic[LongKernelT]):
    """Kernels of `spinning`."""

    unit = "kernels"

    def _blocks(self, options: LongKernelT) -> int:
        """As many as fit on the GPU at once."""
        gpu: Any = torch.cuda.get_device_properties()
        return int(gpu.multi_processor_count * (gpu.max_threads_per_multi_processor // BLOCK))

    def _build(self, options: LongKernelT) -> None:
        self.amount = float(options.kernels)
        self._times = range(options.kernels)
        blocks = self._blocks(options)
        self._kernel = SpinKernel(options.counts, blocks, BLOCK, torch.cuda.current_stream().cuda_stream)
        self.details["blocks"] = blocks

    def _warm_up(self) -> None:
        elapsed = self._options.counts == "elapsed"
        self._kernel.argument.value = round(self._options.ms * 1e6) if elapsed else FIRST_ROUNDS

    def _calibrate(self) -> None:
        if self._options.counts == "elapsed":
            return
        for _ in range(2):  # the second time close to the wanted length
            rounds = self._kernel.argument.value * self._options.ms / 1e3 / self._one_kernel()
            self._kernel.argument.value = max(1, round(rounds))
        self.details["rounds"] = self._kernel.argument.value

    def _one_kernel(self) -> float:
        """Return the shortest time of a few, seconds: what disturbs makes it longer, never shorter."""
        times = []
        for _ in range(4):
            begin = time.monotonic()
            self._kernel.launch()
            self._wait()
            times.append(time.monotonic() - begin)
        return min(times)

    def step(self) -> None:
        """Launch the kernels and wait for them."""
        for _ in self._times:
            self._kernel.launch()
            self.trace.mark()
        self._wait()


class LongKernel(_Spinning[of.LongKernel]):
    """Kernels that hold the whole GPU for long."""


class Spin(_Spinning[of.Spin]):
    """Kernels that hold some SMs."""

    def _blocks(self, options: of.Spin) -> int:
        return options.blocks
