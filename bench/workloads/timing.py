"""The time of a step, measured alike for all workloads on a GPU."""

import time
from collections.abc import Callable

UNFINISHED_STEPS = 2  # limit on how far a training loop runs ahead of the GPU
WARM_UP = 8  # steps: for the allocator, lazily loaded kernels, and the algorithms that cuBLAS and cuDNN choose
REPETITIONS = 10


def step_milliseconds(step: Callable[[], None], wait: Callable[[], None]) -> float:
    """Return the mean time of a step in milliseconds; earlier steps fill the queue and raise the clocks.

    Args:
        step: Makes or queues a step.
        wait: Waits until all queued steps have completed.
    """
    for _ in range(UNFINISHED_STEPS):
        step()
    wait()
    begin = time.monotonic()
    for _ in range(REPETITIONS):
        step()
    wait()
    return (time.monotonic() - begin) / REPETITIONS * 1e3
