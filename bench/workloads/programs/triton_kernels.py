"""Kernels written in Triton, which compiles and launches them without a library of NVIDIA's."""

# mypy: disable-error-code="import-not-found, no-untyped-call, no-untyped-def, untyped-decorator, misc"
from typing import Any

import torch
import triton
import triton.language as tl

from orion.bench.workloads.on_gpu import OnGPU
from orion.bench.workloads.programs import options as of

TILE, DEPTH = 128, 64  # of a product's blocks


@triton.jit
def product_kernel(left, right, out, size, TILE: tl.constexpr, DEPTH: tl.constexpr):  # noqa: D103, N803
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE)
    columns = tl.program_id(1) * TILE + tl.arange(0, TILE)
    total = tl.zeros((TILE, TILE), dtype=tl.float32)
    for start in range(0, size, DEPTH):
        inner = start + tl.arange(0, DEPTH)
        a = tl.load(left + rows[:, None] * size + inner[None, :])
        b = tl.load(right + inner[:, None] * size + columns[None, :])
        total = tl.dot(a, b, total)
    tl.store(out + rows[:, None] * size + columns[None, :], total.to(tl.bfloat16))


@triton.jit
def softmax_kernel(values, out, size, WIDTH: tl.constexpr):  # noqa: D103, N803
    row = tl.program_id(0)
    columns = tl.arange(0, WIDTH)
    inside = columns < size
    numbers = tl.load(values + row * size + columns, mask=inside, other=-float("inf")).to(tl.float32)
    powers = tl.exp(numbers - tl.max(numbers, axis=0))
    tl.store(out + row * size + columns, (powers / tl.sum(powers, axis=0)).to(tl.bfloat16), mask=inside)


class TritonKernels(OnGPU[of.TritonKernels]):
    """A matrix product and a softmax over its rows, back to back."""

    unit = "products"

    def _build(self, options: of.TritonKernels) -> None:
        self.amount = float(options.repeats)
        self._size = options.size
        shape = (options.size, options.size)
        self._left, self._right = (torch.randn(shape, dtype=torch.bfloat16) for _ in range(2))
        self._product, self._weights = (torch.empty(shape, dtype=torch.bfloat16) for _ in range(2))
        self._width = triton.next_power_of_2(options.size)
        self._times = range(options.repeats)

    def step(self) -> None:
        """Launch the kernels and wait for them."""
        size, tiles = self._size, self._size // TILE
        product: Any = product_kernel[(tiles, tiles)]
        softmax: Any = softmax_kernel[(size,)]
        for _ in self._times:
            product(self._left, self._right, self._product, size, TILE=TILE, DEPTH=DEPTH, num_warps=8)
            softmax(self._product, self._weights, size, WIDTH=self._width)
            self.trace.mark()
        self._wait()
