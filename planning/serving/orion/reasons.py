"""Sentences: why a GPU is shared in its way, what the plan needs, and why there is no plan."""

from collections.abc import Sequence
from itertools import combinations

from ..plans import Part
from .capacities import Capacities
from .checking import Filled
from .services import Service
from .tables import Tables

NEEDS = "order edf: one process has to serve all services of a part, because two hp processes run in time slices today"


def sentence(tables: Tables, parts: Sequence[Part], filled: Sequence[Filled]) -> str:
    """Return why the services of one GPU share it as they do."""
    names = ", ".join(dict.fromkeys(each.service for part in parts for each in part.services))
    busy = " and ".join(f"{each.busy:.0%}" for each in filled)
    head = f"GPU {parts[0].gpu}: {names}"
    if parts[0].way == "exclusive":
        return f"{head}: has the whole GPU, because nobody else needs a part of it; it is in use {busy} of the time."
    if parts[0].way == "turns":
        return f"{head}: take turns on the whole GPU, which holds every objective; it is in use {busy} of the time."
    shares = ", ".join(str(part.share) for part in parts)
    cut = "MPS parts" if parts[0].way == "part" else "green contexts"
    return f"{head}: on {cut} of {shares} %, because {_why_cut(tables, filled)}; they are in use {busy} of the time."


def needs(tables: Tables, filled: Sequence[Filled]) -> str:
    """Return what the plan of one GPU needs and today's data plane does not have; empty: nothing."""
    return NEEDS if any(len(part.pieces) > 1 and not in_one_process(tables, [part]) for part in filled) else ""


def in_one_process(tables: Tables, filled: Sequence[Filled]) -> bool:
    """Return whether all services of some parts name the same process."""
    processes = {tables.services[piece.service].process for part in filled for piece in part.pieces}
    return len(processes) == 1 and None not in processes


def _why_cut(tables: Tables, filled: Sequence[Filled]) -> str:
    """Return why these services do not take turns on the whole GPU."""
    gpu = tables.kinds[filled[0].kind].gpu
    rates: dict[int, float] = {}
    for part in filled:
        for piece in part.pieces:
            rates[piece.service] = rates.get(piece.service, 0.0) + piece.rate
    services = [tables.services[place] for place in sorted(rates)]
    for short in services:
        for other in services:
            if other is not short and not tables.figures.can_wait(short, other, gpu.name):
                return f"{short.name} cannot wait for a batch of {other.name} within {short.objective_ms:g} ms"
    least = 1.0
    whole = [tables.figures.alone(service, gpu.name, 100, 1.0, tables.margin) for service in services]
    load = sum(rates[place] / one if one else 9.99 for place, one in zip(sorted(rates), whole, strict=True))
    for one, other in combinations(services, 2):
        together = tables.figures.together(one, other, gpu.name, 100, 1.0, tables.margin)
        least = min(least, together or 1.0)
    if load > least:
        return f"with turns they would need {load / least:.0%} of what the whole GPU can do for them"
    return f"with turns the GPU would do {load / least:.0%} of what it can do for them, and requests would wait longer"


def impossible(tables: Tables) -> str:
    """Return which service no GPU can hold, and the best that can be; empty: each of them can be held."""
    for place, service in enumerate(tables.services):
        if any(tables.capacity[place]):
            if min(_memory(tables, place)) > 0:
                needed, offered = min((needed, gpu) for needed, gpu in _memories(tables, place))
                return (
                    f"{service.name} needs {needed:g} MB on a GPU, and a GPU offers {offered:g}: "
                    "give it a GPU with more memory"
                )
            continue
        best = _best(tables.figures, tables, service)
        if best is None:
            return f"{service.name} has no profile for any of these GPUs: measure one"
        return (
            f"no GPU holds the objective of {service.name}: one request alone takes {best:.3g} ms, and the objective "
            f"is {service.objective_ms:g} ms: allow at least {2 * best:.3g} ms"
        )
    return ""


def too_much(tables: Tables) -> str:
    """Return why services that can be held one by one do not fit together."""
    least = [min(row) for row in zip(*tables.least.values(), strict=True)]
    heaviest = max(range(len(least)), key=lambda place: least[place])
    count = sum(gpu.count for gpu in tables.gpus)
    service = tables.services[heaviest]
    best = _best(tables.figures, tables, service)
    longer = f", or allow {service.name} at least {2 * best:.3g} ms" if best and service.objective_ms < 2 * best else ""
    return (
        f"the services do not fit on {count} GPUs: their load alone is {sum(least):.2f} GPUs, of which "
        f"{service.name} takes {least[heaviest]:.2f}: add a GPU or lower a rate{longer}"
    )


def _memories(tables: Tables, place: int) -> list[tuple[float, float]]:
    """Return what a service needs on a GPU alone, and what the GPU offers, in MB, by type."""
    found = []
    for gpu in tables.gpus:
        profile = tables.services[place].profiles.get(gpu.name)
        if profile is not None:
            found.append((profile.memory_mb + gpu.part_memory_mb, gpu.memory_mb))
    return found


def _memory(tables: Tables, place: int) -> list[float]:
    return [needed - offered for needed, offered in _memories(tables, place)]


def _best(figures: Capacities, tables: Tables, service: Service) -> float | None:
    """Return how long one request takes on the fastest part."""
    times = [
        figures.times(service.profiles[kind.gpu.name], kind.share, 1.0)[0]
        for kind in tables.kinds
        if kind.gpu.name in service.profiles
    ]
    return min(times, default=None)
