"""The process of a tenant of `orion bench memory`.

    python -m orion.bench.memory.tenant KIND OPTIONS     options as JSON

It replies when it is set up. Its commands are those of `orion.bench.workers.commands`, and

    {"do": "steps", "count": N}                          steps back to back: ends, in seconds of CLOCK_MONOTONIC
    {"do": "digest"}                                     trainers: a hash of their state
    {"do": "grow", "begin": T, "arrivals": [...], ...}   servers: see `Server.grow`
    {"do": "shrink"}                                     servers
    {"do": "churn", "end": T}                            churners
    {"do": "sample", "end": T, "every": S}               samplers: the GPU's memory by the driver, as `Sampler.sample`

The process ends when its standard input closes or its parent ends.
"""

import json
import sys
import time
from typing import Any, cast

from orion import hook
from orion.bench.memory import gpu
from orion.bench.workers import commands
from orion.bench.workers.process import Replies, configure_process, end_with, stop_collecting
from orion.bench.workload import NoTrace, Trace, Workload


class Ballast:
    """A program without the hook that takes what a smaller GPU would not have; `leave_mib` stay free."""

    unit, amount = "", 0.0

    def __init__(self, leave_mib: int) -> None:
        self.gpu, _ = gpu.take()
        self.trace: Trace = NoTrace()
        self._held = gpu.blocks(max(0, gpu.free_mib() - leave_mib))
        self.details: dict[str, Any] = {"mib": sum(mib for _, mib in self._held)}


class Sampler:
    """Asks the driver what is in use, without being a client of the GPU.

    Args:
        simulated: asks the simulated driver.
        but: a process that does not count, the ballast.
    """

    unit, amount, gpu = "", 0.0, ""

    def __init__(self, simulated: bool, but: int = 0) -> None:
        from orion.node_agent.gpus import factory

        self.trace: Trace = NoTrace()
        self.details: dict[str, Any] = {}
        self._but = but
        self._source = factory.choose("simulated" if simulated else "nvml", hook.simulated_driver())
        self._gpu = self._source.find()[0]

    def sample(self, end: float, every: float) -> dict[str, Any]:
        """Return rows of the time (CLOCK_MONOTONIC), the bytes that processes hold, and how many hold some."""
        rows = []
        while (now := time.monotonic()) < end:
            listed = self._source.memory_of_processes(self._gpu) or {}
            held = [size for process, size in listed.items() if size and process != self._but]
            rows.append((round(now, 4), sum(held), len(held)))
            time.sleep(every)
        return {"rows": rows}


def _made(kind: str, options: dict[str, Any]) -> Any:
    if kind == "torch-trainer":
        from orion.bench.memory.torch_trainer import TorchTrainer

        return TorchTrainer(**options)
    from orion.bench.memory.churner import Churner
    from orion.bench.memory.server import Server
    from orion.bench.memory.trainer import Trainer

    kinds = {"trainer": Trainer, "server": Server, "churner": Churner, "ballast": Ballast, "sampler": Sampler}
    return kinds[kind](**options)


def _obey(tenant: Any, command: dict[str, Any]) -> dict[str, Any]:
    what, arguments = command["do"], {name: value for name, value in command.items() if name != "do"}
    if what in ("serve", "loop"):
        return commands.obey(cast("Workload", tenant), command)
    if what == "digest":
        return {"digest": tenant.digest()}
    if what == "steps":
        ends = []
        for _ in range(arguments["count"]):
            tenant.step()
            ends.append(time.monotonic())
        return {"ends": ends}
    return cast("dict[str, Any]", getattr(tenant, what)(**arguments))


def main(kind: str, options: str) -> None:
    """Set up, then execute commands until standard input ends."""
    replies = Replies()
    configure_process()
    try:
        tenant = _made(kind, json.loads(options))
        stop_collecting()
        replies.send(commands.about(tenant))
        for line in sys.stdin:
            replies.send(_obey(tenant, json.loads(line)))
    except Exception as error:
        end_with(error)


if __name__ == "__main__":
    main(*sys.argv[1:])
