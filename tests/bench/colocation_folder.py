"""Writes output folders of a colocation, for tests of the code that reads them; a queueing model computes the data."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np

from orion.bench import raw_data
from orion.bench.arrivals import arrivals_with_lead
from orion.bench.colocation.ceiling import Speeds, outcomes

LEAD = 1.0
MPS = {"kind": "orion", "mode": "mps", "policy": "orion"}
System = tuple[dict[str, Any], Speeds, float]
"""Specification of the system, and the model's speeds and limit X."""

SYSTEMS: dict[str, System] = {
    "timeslice": ({"kind": "timeslice"}, Speeds(1.0, 0.45, 0.5), float("inf")),
    "mps": ({"kind": "mps"}, Speeds(0.93, 0.35, 0.95), float("inf")),
    "mps+sm-cap": ({"kind": "mps"}, Speeds(0.93, 0.7, 0.6), float("inf")),
    "gate": ({"kind": "orion", "mode": "timeslice", "policy": "gate"}, Speeds(0.995, 0.995, 0.0), 0.0),
    "orion": ({"kind": "orion", "mode": "timeslice", "policy": "orion"}, Speeds(0.995, 0.99, 0.0), 0.0),
    "gate-in-mps": ({**MPS, "policy": "gate"}, Speeds(0.93, 0.93, 0.0), 0.0),
    "orion-1.2": ({**MPS, "max_slowdown": 1.2}, Speeds(0.93, 0.7, 0.6), 0.02),
    "orion-1.4": ({**MPS, "max_slowdown": 1.4}, Speeds(0.93, 0.7, 0.6), 0.2),
}


class ColocationFolder:
    """Writes run files, valid or invalid."""

    def __init__(self, root: Path, seed: int = 1) -> None:
        self.root = root
        self._draw = random.Random(seed)
        root.mkdir(parents=True, exist_ok=True)
        (root / "scenario.yaml").write_text("name: made-up\n")
        machine = {"gpu": "NVIDIA H200, 580.159.04, 143771 MiB", "simulated": False, "torch": "2.11.0+cu130"}
        (root / "machine.json").write_text(json.dumps(machine))

    def write(self, path: str, **fields: Any) -> None:
        """Write one run; missing fields of the format are empty."""
        whole = {
            "format": 1, "round": 0, "hp": None, "be": [], "load": None, "rate": None, "arrivals": [], "starts": [],
            "ends": [], "gpu": None, "error": None, **fields,
        }  # fmt: skip
        target = self.root / "runs" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        raw_data.write(target, whole)

    def pair(
        self, hp: dict[str, Any], be: dict[str, Any], systems: dict[str, System] | None = None, rounds: int = 3,
        service: float = 0.004, load: float = 0.5, requests: int = 600, clients: int = 1,
    ) -> None:  # fmt: skip
        """Write the runs of an hp with Poisson arrivals beside one be."""
        for number in range(rounds):
            rate = load / service
            arrivals, end = arrivals_with_lead(rate, requests, LEAD, 1000 + number)
            window = (LEAD, end)
            about = {"hp": hp, "round": number, "load": load, "rate": rate, "window": window}
            self.write(
                f"{hp['id']}/{number}/hp-closed-loop.json.gz", system="hp-closed-loop", system_spec={"kind": "alone"},
                **{**about, "window": (0.5, 3.5)}, ends=self._steps(1 / service, 4.0),
            )  # fmt: skip
            self._beside(f"{hp['id']}/{number}/alone", about, arrivals, service, None, [])
            self._be_alone(hp, be, number)
            for name, system in (SYSTEMS if systems is None else systems).items():
                path = f"{hp['id']}/{number}/{be['id']}/{name}"
                self._beside(path, about, arrivals, service, system, self._clients(be, clients))

    def closed(
        self, hp: dict[str, Any], be: dict[str, Any], systems: dict[str, System], rounds: int = 3,
        service: float = 0.004, seconds: float = 5.0,
    ) -> None:  # fmt: skip
        """Write the runs of an hp in a closed loop: alone at full speed, beside be at the overlapped speeds."""
        window = (LEAD, LEAD + seconds)
        for number in range(rounds):
            about = {"hp": hp, "round": number, "window": window}
            ends = self._steps(1 / service, window[1] + 0.2)
            path = f"{hp['id']}/{number}"
            self.write(f"{path}/alone.json.gz", system="alone", system_spec={"kind": "alone"}, **about, ends=ends)
            self._be_alone(hp, be, number)
            for name, (spec, speeds, _) in systems.items():
                client = {**be, "amount": 8.0, "ends": self._steps(100 * speeds.be_overlapped, window[1] + 0.2)}
                ends = self._steps(speeds.overlapped / service, window[1] + 0.2)
                self.write(
                    f"{path}/{be['id']}/{name}.json.gz", system=name, system_spec=spec, **about, ends=ends, be=[client]
                )

    def ceiling(
        self, hp: dict[str, Any], be: dict[str, Any], systems: dict[str, System], mode: str = "mps", rounds: int = 3,
        service: float = 0.004,
    ) -> None:  # fmt: skip
        """Write the closed loops of a pair, from which the analysis computes its ceiling."""
        prefix = "threads-" if mode == "threads" else ""
        for number in range(rounds):
            about = {"hp": hp, "round": number, "window": (0.5, 5.5)}
            for name, (spec, speeds, _) in systems.items():
                client = {**be, "amount": 8.0, "ends": self._steps(100 * speeds.be_overlapped, 5.7)}
                self.write(
                    f"{hp['id']}/{number}/{be['id']}/{prefix}closed-overlap-{name}.json.gz", system=name,
                    system_spec=spec, **about, ends=self._steps(speeds.overlapped / service, 5.7), be=[client],
                )  # fmt: skip
                self.write(
                    f"{hp['id']}/{number}/{mode}-closed-loop.json.gz", system="closed-loop", system_spec=spec,
                    **about, ends=self._steps(speeds.alone / service, 5.7),
                )  # fmt: skip

    def _be_alone(self, hp: dict[str, Any], be: dict[str, Any], number: int) -> None:
        client = {**be, "amount": 8.0, "ends": self._steps(100, 6.2)}
        self.write(
            f"{hp['id']}/{number}/be-alone/{be['id']}.json.gz", system="be-alone", system_spec={"kind": "alone"},
            round=number, window=(LEAD, 6.0), be=[client],
        )  # fmt: skip

    def _clients(self, be: dict[str, Any], count: int) -> list[dict[str, Any]]:
        return [{**be, "id": f"{be['id']}-{index}" if count > 1 else be["id"]} for index in range(count)]

    def _beside(
        self, path: str, about: dict[str, Any], arrivals: list[float], service: float, system: System | None,
        clients: list[dict[str, Any]],
    ) -> None:  # fmt: skip
        spec, speeds, limit = system or ({"kind": "alone"}, Speeds(1.0, 1.0, 0.0), 0.0)
        services = [service * self._draw.uniform(0.995, 1.005) for _ in arrivals]
        result = outcomes(arrivals, np.asarray(services), speeds, [limit], about["window"])
        ends = np.asarray(arrivals) + result.latencies[0]
        starts = np.maximum(arrivals, np.concatenate(([0.0], ends[:-1])))
        rate = 100 * float(result.be[0]) / max(1, len(clients))
        be = [{**client, "amount": 8.0, "ends": self._steps(rate, about["window"][1] + 0.2)} for client in clients]
        self.write(
            f"{path}.json.gz", system=path.rpartition("/")[2], system_spec=spec, **about, arrivals=arrivals,
            starts=starts.tolist(), ends=ends.tolist(), be=be,
        )  # fmt: skip

    def _steps(self, rate: float, seconds: float) -> list[float]:
        """Return completion times at a rate, with a little jitter."""
        if rate <= 0:
            return []
        steps = int(seconds * rate)
        return sorted((step + self._draw.uniform(0.9, 1.0)) / rate for step in range(steps))


def workload(identity: str, kind: str, **options: Any) -> dict[str, Any]:
    """Return the description of a process in a run file."""
    about = {"gpu": "NVIDIA H200", "unit": "steps", "amount": 1.0, "details": {"torch": "2.11.0+cu130"}}
    return {"id": identity, "workload": kind, "options": options, "about": about}
