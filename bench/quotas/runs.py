"""Makes the runs of `orion bench quotas`: for each setting, each client alone, then all of them together."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from orion.bench import raw_data
from orion.bench.managed import ManagedGPU, machine
from orion.bench.quotas.scenario import Client, Scenario, Setting
from orion.bench.samples import completed_between
from orion.bench.workers.crew import Crew, Worker
from orion.bench.workloads import load

PAUSE = 0.3  # seconds between a command and its begin, for all workers to read it
LEAD = 0.5  # seconds of a loop alone before it is measured
PATIENCE = 60.0  # seconds
START_SECONDS = 15.0  # an estimate, for --stop-after


def run(
    scenario: Scenario, folder: Path, simulated: bool, only: str | None, stop_after: float, say: Callable[[str], None]
) -> None:
    """Make all runs that the folder lacks, and write one file for each.

    Args:
        scenario: what to measure.
        folder: where the files are; an existing folder is continued.
        simulated: use a simulated GPU.
        only: the name of the one setting to measure; None: all.
        stop_after: start no run that would end later than this, in seconds.
        say: prints a line of progress.

    Raises:
        Unavailable: there is no GPU, or a process has failed.
    """
    began = time.monotonic()
    needs = START_SECONDS + scenario.settle_seconds + scenario.seconds
    folder.mkdir(parents=True, exist_ok=True)
    for setting in scenario.settings:
        path = folder / f"{setting.name}.json.gz"
        if path.exists() or only not in (None, setting.name):
            continue
        if time.monotonic() - began + needs > stop_after:
            say(f"{setting.name}: no time is left")
            return
        say(f"{setting.name}: {len(setting.clients)} clients")
        with ExitStack() as stack:
            raw_data.write(path, _Run(stack, scenario, setting, simulated).measure())


class _Run:
    """The processes of one setting."""

    def __init__(self, stack: ExitStack, scenario: Scenario, setting: Setting, simulated: bool) -> None:
        environment = stack.enter_context(machine(simulated))
        self._gpu = stack.enter_context(ManagedGPU(environment, simulated))
        self._crew = stack.enter_context(Crew())
        self._scenario, self._setting = scenario, setting
        self._slots: list[str] = []
        self._workers = [self._start(client, simulated) for client in setting.clients]
        every = [worker for workers in self._workers for worker in workers]
        self._crew.ready(*every)
        for worker in every:
            self._gpu.wait_for_process(worker.process_id)

    def _start(self, client: Client, simulated: bool) -> list[Worker]:
        if client.priority == "hp":
            environment = self._gpu.client_environment("hp")
            self._gpu.set_policy(request=client.request or 1.0)
        else:
            environment = self._gpu.client_environment("be", client.request or 0.0)
        self._slots.append(Path(environment["ORION_ROOT"]).name)
        kind, options = load(client.workload, client.options, simulated)
        name = f"{self._setting.name} {self._slots[-1]} {client.workload}"
        return [self._crew.start(name, kind, options, environment) for _ in range(client.processes)]

    def measure(self) -> dict[str, Any]:
        """Return the content of the setting's file."""
        header = raw_data.header("orion.bench.quotas.runs")
        alone = self._alone()
        for slot, client in zip(self._slots, self._setting.clients, strict=True):
            if client.limit is not None:
                self._gpu.set_grant(slot, limit=client.limit)
        every = [worker for workers in self._workers for worker in workers]
        settle, seconds = self._scenario.settle_seconds, self._scenario.seconds
        begin = time.monotonic() + PAUSE
        for worker in every:
            worker.command(do="loop", begin=begin, end=begin + settle + seconds)
        self._change(begin + settle + seconds / 2)
        ends = iter(self._crew.gather(*every, seconds=PATIENCE + settle + seconds))
        return {
            **header,
            "setting": self._setting.model_dump(exclude_none=True),
            "window": [settle, settle + seconds],
            "alone": alone,
            "ends": [[raw_data.rounded(next(ends)["ends"]) for _ in workers] for workers in self._workers],
        }

    def _alone(self) -> list[float]:
        """Return the steps a second of each client alone; equal clients are measured once."""
        rates: dict[str, float] = {}
        for client, workers in zip(self._setting.clients, self._workers, strict=True):
            key = f"{client.workload} {client.options}"
            if key not in rates:
                begin = time.monotonic() + PAUSE
                end = LEAD + self._scenario.alone_seconds
                workers[0].command(do="loop", begin=begin, end=begin + end)
                (reply,) = self._crew.gather(workers[0], seconds=PATIENCE + end)
                rates[key] = completed_between(reply["ends"], LEAD, end) / self._scenario.alone_seconds
        return [rates[f"{client.workload} {client.options}"] for client in self._setting.clients]

    def _change(self, when: float) -> None:
        changed = [(slot, each.later_request) for slot, each in zip(self._slots, self._setting.clients, strict=True)]
        if not any(request for _, request in changed):
            return
        time.sleep(max(0.0, when - time.monotonic()))
        for slot, request in changed:
            if request is not None:
                self._gpu.set_grant(slot, request=request)
