"""The plan of services: who runs where, which way each GPU is shared, and why."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ..plans import Assignment, Part, Plan
from . import reasons
from .beneath import Beneath, beneath
from .capacities import Capacities
from .checking import Filled, Layout
from .comparing import shortest
from .moving import kept, renamed
from .prediction import STEPS
from .searching import search
from .services import BestEffort, GpuType, Service
from .tables import Care, Tables

ORDER = "edf"
""" Earliest deadline first: with it the parts of this planner hold their objectives. """
CARE = (Care(0.3, STEPS, 240, 24), Care(0.5, 4 * STEPS, 2000, 100))
""" The margins are for the predictor's error and for short runs, because misses come in clusters. The second search is
for services for which the first finds no plan.

Refused: the second search for each number of GPUs. In 75 of glet's cases it saved one of 205 GPUs, and planning took
1.8 times as long. """


@dataclass(frozen=True, slots=True)
class Used:
    """What a plan makes of one GPU.

    Attributes:
        gpu: its number in the plan; the GPUs of the first type come first.
        type: its type.
        way: `exclusive`, `turns`, `part` or `threads`.
        why: one sentence.
        needs: what the plan needs of the data plane and today's does not have; empty: nothing.
        busy: the part of the time in which a service runs on it.
        missed: requests/s that miss their objective, predicted.
        spare: the part of the GPU's time that is left for best-effort work.
    """

    gpu: int
    type: str
    way: str
    why: str
    needs: str
    busy: float
    missed: float
    spare: float


@dataclass(frozen=True, slots=True)
class Decision:
    """A plan with its reasons.

    Attributes:
        plan: the parts; `plan.reason` holds the sentences of all GPUs, or why there is no plan.
        gpus: the GPUs that serve something.
        beneath: best-effort work beneath the services.
    """

    plan: Plan
    gpus: tuple[Used, ...] = ()
    beneath: tuple[Beneath, ...] = ()

    @property
    def needs(self) -> tuple[str, ...]:
        """What today's data plane does not have, each once."""
        return tuple(dict.fromkeys(gpu.needs for gpu in self.gpus if gpu.needs))


def plan(
    services: Sequence[Service],
    gpus: Sequence[GpuType],
    *,
    best_effort: Sequence[BestEffort] = (),
    previous: Plan | None = None,
    figures: Capacities | None = None,
) -> Decision:
    """Return the plan with the fewest GPUs, then the fewest predicted misses, then the most time for best effort.

    If nothing runs beneath the services and one GPU is enough, the shortest latency decides instead of that time.

    Args:
        services: with rates, objectives and profiles; no two have the same name.
        gpus: the types of GPU, the preferred one first.
        best_effort: work that may run beneath the services.
        previous: a plan that runs now. It stays if it holds; else GPUs keep as much of it as they can.
        figures: what earlier plans worked out. Without it the plan is the same, and takes longer.

    Raises:
        ValueError: two services or two types have the same name.
    """
    for names in ([service.name for service in services], [gpu.name for gpu in gpus]):
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise ValueError(f"{twice[0]} occurs twice: give each its own name")
    figures = figures or Capacities()
    reason = ""
    for care in CARE:
        tables = Tables(services, gpus, figures, care)
        reason = reasons.impossible(tables)
        layout = None if reason else search(tables)
        if layout is not None:
            if not best_effort:
                layout = shortest(tables, layout)
            return _decided(tables, kept(tables, layout, previous) or layout, best_effort, previous)
        reason = reason or reasons.too_much(tables)
    return Decision(Plan((), reason, is_schedulable=False))


def _decided(tables: Tables, layout: Layout, best_effort: Sequence[BestEffort], previous: Plan | None) -> Decision:
    parts = _numbered(tables, layout)
    if previous is not None:
        parts = renamed(tables, parts, previous)
    by_gpu: dict[int, list[tuple[Part, Filled]]] = {}
    for part, filled in sorted(parts, key=lambda each: (each[0].gpu, -each[0].share, each[0].copy)):
        by_gpu.setdefault(part.gpu, []).append((part, filled))
    used = tuple(_used(tables, there) for there in by_gpu.values())
    placed = beneath([(gpu.gpu, gpu.spare, _free_mb(tables, by_gpu[gpu.gpu])) for gpu in used], best_effort)
    plan_parts = tuple(part for there in by_gpu.values() for part, _ in there)
    why = [gpu.why for gpu in used] + [
        f"The plan needs {need}." for need in dict.fromkeys(g.needs for g in used) if need
    ]
    return Decision(Plan(plan_parts, " ".join(why)), used, placed)


def _numbered(tables: Tables, layout: Layout) -> list[tuple[Part, Filled]]:
    """Number the GPUs of each type from the first of that type on, and name the ways."""
    first, begin = {}, 0
    for gpu in tables.gpus:
        first[gpu.name] = begin
        begin += gpu.count
    numbers: dict[int, int] = {}
    copies: Counter[tuple[int, int]] = Counter()
    parts = []
    for filled in layout.parts:
        kind = tables.kinds[filled.kind]
        if filled.gpu not in numbers:
            numbers[filled.gpu] = first[kind.gpu.name]
            first[kind.gpu.name] += 1
        number = numbers[filled.gpu]
        there = [other for other in layout.parts if other.gpu == filled.gpu]
        services = tuple(
            Assignment(
                tables.services[piece.service].name,
                piece.batch,
                piece.rate,
                tables.services[piece.service].max_delay_ms,
            )
            for piece in filled.pieces
        )
        copy = copies[number, kind.share]
        copies[number, kind.share] += 1
        parts.append((Part(number, kind.share, copy, _way(tables, there), ORDER, services), filled))
    return parts


def _way(tables: Tables, parts: Sequence[Filled]) -> str:
    """Return how the services of one GPU share it."""
    if len(parts) == 1:
        return "exclusive" if len(parts[0].pieces) == 1 else "turns"
    return "threads" if reasons.in_one_process(tables, parts) else "part"


def _used(tables: Tables, there: Sequence[tuple[Part, Filled]]) -> Used:
    parts = [part for part, _ in there]
    filled = [each for _, each in there]
    gpu = tables.kinds[filled[0].kind].gpu
    idle = 1.0
    for each in filled:
        idle *= 1.0 - min(each.busy, 1.0)
    requests = sum(piece.rate for each in filled for piece in each.pieces)
    spare = max(0.0, idle * (1.0 - requests * gpu.switch_ms / 1000))
    missed = sum(piece.rate * piece.misses for each in filled for piece in each.pieces)
    return Used(
        parts[0].gpu, gpu.name, parts[0].way, reasons.sentence(tables, parts, filled), reasons.needs(tables, filled),
        1.0 - idle, missed, spare,
    )  # fmt: skip


def _free_mb(tables: Tables, there: Sequence[tuple[Part, Filled]]) -> float:
    gpu = tables.kinds[there[0][1].kind].gpu
    used = sum(
        gpu.part_memory_mb + sum(tables.memory_mb[piece.service][each.kind] for piece in each.pieces)
        for _, each in there
    )
    return gpu.memory_mb - used
