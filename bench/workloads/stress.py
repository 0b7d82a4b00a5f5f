"""Stress kernels without a model; each class tests one difficulty of sharing a GPU."""

# mypy: disable-error-code="import-not-found, no-untyped-call"
import time
from typing import Any, Generic, TypeVar

import torch

from orion.bench.workloads import options as of
from orion.bench.workloads.on_gpu import OnGPU
from orion.bench.workloads.spinning import SpinKernel

BLOCK = 1024  # threads; CUDA's maximum for a block
FIRST_ROUNDS = 100_000  # rounds of a spinning kernel before its calibration: some milliseconds
LongKernelT = TypeVar("LongKernelT", bound=of.LongKernel)


class Gemm(OnGPU[of.Gemm]):
    """Square bf16 matrix products back to back: they fill the GPU, and large ones are long kernels."""

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
    """Passes over a large tensor: they use the memory bandwidth, in short blocks."""

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
    """Kernels from `spinning`."""

    unit = "kernels"

    def _blocks(self, options: LongKernelT) -> int:
        """Return as many blocks as the GPU can run at the same time."""
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
        for _ in range(2):  # the second iteration measures at about the wanted duration
            rounds = self._kernel.argument.value * self._options.ms / 1e3 / self._one_kernel()
            self._kernel.argument.value = max(1, round(rounds))
        self.details["rounds"] = self._kernel.argument.value

    def _one_kernel(self) -> float:
        """Return the shortest of four times, in seconds: disturbances only make a kernel longer."""
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
    """Long kernels that occupy all SMs."""


class Spin(_Spinning[of.Spin]):
    """Kernels that occupy some SMs."""

    def _blocks(self, options: of.Spin) -> int:
        return options.blocks
