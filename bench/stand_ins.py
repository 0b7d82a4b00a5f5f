"""The simulated stand-in of each real workload: lets the GPU measurements be tried, and tested, on any machine.

What they give on the simulated GPU are no results; they show that a script runs to its end.
"""

from typing import Any

Load = tuple[str, dict[str, Any]]
"""Kind and options of a workload."""

_STAND_INS: dict[str, Load] = {
    "resnet50-inference": ("simulated-inference", {"kernel_us": 430, "kernels": 10}),
    "resnet50-eager": ("simulated-inference", {"kernel_us": 10, "kernels": 100, "sms": 20}),
    "resnet50-training": ("simulated-training", {"kernel_us": 150, "kernels": 60}),
    "bert-training": ("simulated-training", {"kernel_us": 400, "kernels": 30}),
    "gemm": ("simulated-training", {"kernel_us": 1800, "kernels": 8}),
}


def load(kind: str, options: dict[str, Any], simulated: bool) -> Load:
    """Return a workload as it is, or its stand-in."""
    return _STAND_INS[kind] if simulated else (kind, options)
