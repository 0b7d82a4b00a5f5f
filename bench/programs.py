"""`orion bench programs`: public programs, each alone, as hp and as be, beside a standard partner.

The command is a colocation whose scenario is made here: hp is a ResNet-50 server and be each program; then hp is each
program in a closed loop and be a loop of the same ResNet-50.
"""

from collections.abc import Sequence
from typing import Any

from orion.bench.colocation.scenario import BestEffort, Closed, Experiment, Load, Paced, Scenario
from orion.bench.workloads import KINDS, load, why_skipped
from orion.bench.workloads.programs.kinds import PROGRAMS
from orion.errors import Invalid

Case = tuple[str, dict[str, Any]]
"""A program and its options."""

PARTNER: Case = ("resnet50-inference", {"batch": 64, "mode": "graph"})
RATE = 80.0  # requests a second of the partner; about a third of what it can serve on an H200
FEWEST_STEPS = 10
VARIANTS: list[Case] = [
    ("compiled-training", {"mode": "reduce-overhead"}),
    ("compiled-training", {"mode": "max-autotune"}),
    ("decode-graph", {"updated": True}),
    ("jax-training", {"donate": True}),
    ("jax-training", {"command_buffers": False}),
    ("timm-inference", {"mode": "default"}),
    ("timm-inference", {"mode": "reduce-overhead"}),
    ("timm-inference", {"mode": "max-autotune"}),
]
""" Programs also run with these options, because they then launch their kernels in another way. """


def cases(wanted: Sequence[str]) -> list[Case]:
    """Return the programs with their options.

    Args:
        wanted: Names of programs; empty: all.

    Raises:
        Invalid: There is no such program.
    """
    for name in wanted:
        if name not in PROGRAMS:
            raise Invalid(f"there is no program {name!r}; there are {', '.join(PROGRAMS)}")
    every: list[Case] = [(name, {}) for name in PROGRAMS]
    every += VARIANTS
    return [case for case in every if not wanted or case[0] in wanted]


def listed() -> list[dict[str, Any]]:
    """Return each program with its packages, and why it cannot run here."""
    return [
        {
            "program": name,
            "summary": kind.summary,
            "packages": {package: kind.versions.get(package) for package in kind.packages},
            "skipped": why_skipped(name),
        }
        for name, kind in PROGRAMS.items()
    ]


def scenario(chosen: Sequence[Case], seconds: float) -> Scenario:
    """Return the scenario that runs the programs.

    Args:
        chosen: The programs with their options.
        seconds: About how long each run takes, without the start of processes.
    """
    systems = ["alone", "orion"]
    partner = Load(workload=PARTNER[0], options=PARTNER[1])
    as_be = Experiment(
        hp=partner,
        arrivals=Paced(kind="poisson", rate=RATE),
        requests=max(1, round(seconds * RATE)),
        priority=1,
        be=[BestEffort(workload=name, options=options) for name, options in chosen],
        systems=systems,
    )
    as_hp = [
        Experiment(
            hp=Load(workload=name, options=options),
            arrivals=Closed(kind="closed"),
            requests=max(FEWEST_STEPS, round(seconds * 1e3 / _step_ms(name, options))),
            be=[BestEffort(workload=PARTNER[0], options=PARTNER[1])],
            systems=systems,
        )
        for name, options in chosen
    ]
    return Scenario(
        name="programs-by-role",
        rounds=1,
        lead_seconds=min(1.0, seconds / 4),
        closed_loop_seconds=seconds / 2,
        be_alone_seconds=seconds / 2,
        experiments=[as_be, *as_hp],
    )


def _step_ms(name: str, options: dict[str, Any]) -> float:
    """Return about how long a step takes on an H200: as long as the step of its stand-in."""
    kind, resolved = load(name, options, simulated=True)
    step = KINDS[kind].options.model_validate(resolved).model_dump()
    return float(step["kernel_us"] * step["kernels"] / 1e3)
