"""A scenario of one pair that takes seconds on the simulated GPU, and the command that measures it."""

from pathlib import Path
from typing import Any

import yaml

from orion.bench.colocation import measure

QUICK = {"rounds": 1, "requests": 40, "lead_seconds": 0.1, "closed_loop_seconds": 0.4, "be_alone_seconds": 0.4}
HP = {"workload": "simulated-inference", "options": {"kernel_us": 500, "kernels": 8}}
BE = {"workload": "simulated-training"}
PAIR = "runs/simulated-inference-kernel-us-500-kernels-8-poisson-0.3/0"


def scenario(folder: Path, systems: list[str], defined: dict[str, Any] | None = None, **changes: Any) -> Path:
    experiment = {"hp": HP, "arrivals": {"kind": "poisson", "load": 0.3}, "be": [BE], "systems": systems}
    experiment |= {name: changes.pop(name) for name in ("hp", "arrivals", "be") if name in changes}
    path = folder / "scenario.yaml"
    path.write_text(yaml.safe_dump({
        "name": "tried", **QUICK, **changes, "systems": defined or {}, "experiments": [experiment],
    }))  # fmt: skip
    return path


def measured(path: Path, output: Path, **options: Any) -> int:
    return measure.run(measure.Options(path, output, simulated=True, **options))
