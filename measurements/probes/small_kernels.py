"""Measures which actions make a decoder's small kernels start faster, and which actions end that effect.

    python measurements/probes/small_kernels.py        on a machine with torch and an otherwise idle NVIDIA GPU

It does one action after the other. After each action, it prints the median time of a request of 16 tokens (a CUDA
graph replayed 16 times); see `orion.hook.switching`.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from orion.bench.workloads import make
from orion.hook.switching import Switcher

REQUESTS = 20


def median_ms(decoder: Any) -> float:
    """Return the median time of a request in a closed loop."""
    times = []
    with decoder.throughout():
        for _ in range(REQUESTS):
            begin = time.perf_counter()
            decoder.step()
            times.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(times[2:])


def main() -> None:
    """Time the decoder after each action."""
    decoder = make("gpt-decode-unsynchronised", {"batch": 1, "tokens": 16, "mode": "graph"})
    kept: list[Any] = []

    def reported(what: str, action: Callable[[], Any] = lambda: None) -> None:
        kept.append(action())
        torch.cuda.synchronize()
        print(f"{median_ms(decoder):7.2f} ms  {what}", flush=True)

    reported("after its set-up")
    with Switcher("") as switcher:
        reported("another process has made a context")
        reported("5 s without requests", lambda: time.sleep(5))
        reported("1 GiB allocated", lambda: torch.empty(1 << 30, dtype=torch.uint8, device="cuda"))
        reported("another stream made and used", _use_a_stream)
        reported("a convolution", _convolve)
        reported("another workload set up", lambda: make("resnet50-inference", {"batch": 8, "mode": "graph"}))
        reported("one switch of contexts", switcher.switch)


def _use_a_stream() -> Any:
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        return stream, torch.randn(4096, 4096, device="cuda") @ torch.randn(4096, 4096, device="cuda")


def _convolve() -> Any:
    return torch.nn.functional.conv2d(
        torch.randn(8, 64, 56, 56, device="cuda"), torch.randn(64, 64, 3, 3, device="cuda")
    )


if __name__ == "__main__":
    main()
