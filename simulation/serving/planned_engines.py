"""Plans the engines of a scenario: each gets the fewest whole GPUs on which it holds its objective in the simulator.

An engine fills what it gets: it batches by itself, and its KV cache has the GPU's memory. So engines share no GPU.
"""

from collections.abc import Sequence
from dataclasses import replace

from orion.errors import NotFound
from orion.planning.serving.plans import Assignment, Part, Plan

from .setting import Service, Setting
from .simulating import SERVED, simulate


def engines(setting: Setting) -> tuple[tuple[Part, ...], tuple[str, ...]]:
    """Return the parts of the engines, from the last GPU on, and a sentence for each GPU.

    Raises:
        NotFound: an engine holds its objective on no number of GPUs.
    """
    free = list(range(len(setting.gpus)))
    parts: list[Part] = []
    reasons: list[str] = []
    for service in setting.services:
        if service.engine is not None:
            mine = _one(setting, service, free)
            parts += mine
            free = [number for number in free if number not in [part.gpu for part in mine]]
            reasons += [f"{setting.gpus[part.gpu].name}: {service.name} is an engine and fills a GPU." for part in mine]
    return tuple(sorted(parts, key=lambda part: part.gpu)), tuple(reasons)


def _one(setting: Setting, service: Service, free: Sequence[int]) -> list[Part]:
    """Return the parts of one engine on the fewest of the free GPUs."""
    large = [number for number in reversed(free) if service.memory_gb <= setting.gpus[number].memory_gb]
    alone, ratio = replace(setting, services=(service,)), 1.0
    for count in range(1, len(large) + 1):
        assigned = (Assignment(service.name, 1, 1.0, 0.0),)
        parts = [Part(gpu, 100, 0, "exclusive", "fifo", assigned) for gpu in large[:count]]
        (found,) = simulate(alone, Plan(tuple(parts))).services
        ratio = float((found.outcomes != SERVED).mean()) if len(found.outcomes) else 0.0
        if ratio <= 1 - service.objective.quantile:
            return parts
    raise NotFound(
        f"{setting.source}: no plan holds the objective of the engine {service.name}: {ratio:.1%} of its requests are "
        f"late on {len(large)} GPUs, which are all that are free for it: add GPUs, or relax the objective"
    )
