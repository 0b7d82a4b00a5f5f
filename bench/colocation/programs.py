"""The figures of public programs, by program and role, from the figures of pairs."""

from collections.abc import Iterator, Sequence
from typing import Literal

from orion.bench.colocation import names
from orion.bench.colocation.scenario import Load
from orion.bench.colocation.summary import Client, PairFigures, ProgramFigures
from orion.bench.workloads import KINDS


def figures(pairs: Sequence[PairFigures]) -> list[ProgramFigures]:
    """Return the figures of each program in each role, beside each partner under each system."""
    return [row for pair in pairs for row in _of_pair(pair)]


def _of_pair(pair: PairFigures) -> Iterator[ProgramFigures]:
    hp, be = pair.hp, pair.be[0]
    sides: list[tuple[Literal["hp", "be"], Client, Client]] = [("hp", hp, be), ("be", be, hp)]
    for role, client, partner in sides:
        kind = KINDS.get(client.workload)
        if kind is None or not kind.packages:
            continue
        for system in pair.systems:
            step = client.facts.get("step_ms")
            yield ProgramFigures(
                program=_name(client),
                versions={name: str(client.facts[name]) for name in kind.packages if name in client.facts},
                role=role,
                beside=_name(partner),
                system=system.system,
                step_ms=step if isinstance(step, int | float) else None,
                hp_p50=system.latency["p50"],
                hp_p99=system.latency["p99"],
                be=system.be,
                be_over_bound=system.be_over_bound,
            )


def _name(client: Client) -> str:
    return names.of_load(Load(workload=client.workload, options=client.options))
