"""Makes the runs of `orion bench quotas`: for each setting, all clients together, and each alone before and after."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from orion.bench import kept_runs, raw_data
from orion.bench.colocation.mps import MpsDaemon
from orion.bench.commandline import check_only
from orion.bench.managed import ManagedGPU, machine
from orion.bench.quotas.scenario import Client, Scenario, Setting
from orion.bench.samples import completed_between
from orion.bench.workers.crew import Crew, Worker
from orion.bench.workloads import load
from orion.errors import Exhausted
from orion.node_agent.api import agent_pb2

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
        Invalid: no setting has the name, or the folder has runs of other settings.
        Exhausted: a client is too slow for the time that it is measured alone.
        Unavailable: there is no GPU, or a process has failed.
    """
    began = time.monotonic()
    check_only([setting.name for setting in scenario.settings], only)
    kept_runs.claim(
        folder,
        {setting.name: setting for setting in scenario.settings},
        window=[scenario.settle_seconds, scenario.settle_seconds + scenario.seconds],
        simulated=simulated,
    )
    for setting in scenario.settings:
        path = folder / f"{setting.name}.json.gz"
        if path.exists() or only not in (None, setting.name):
            continue
        alone = 2 * len(setting.clients) * (PAUSE + LEAD + scenario.alone_seconds)
        needs = START_SECONDS + alone + scenario.settle_seconds + scenario.seconds
        if time.monotonic() - began + needs > stop_after:
            say(f"{setting.name}: no time is left")
            return
        say(f"{setting.name}: {len(setting.clients)} clients")
        with ExitStack() as stack:
            run = _Run(stack, scenario, setting, simulated)
            raw_data.write(path, {**run.measure(), "simulated": simulated})


class _Run:
    """The processes of one setting."""

    def __init__(self, stack: ExitStack, scenario: Scenario, setting: Setting, simulated: bool) -> None:
        environment = stack.enter_context(machine(simulated, setting.mode))
        options = ["--longest-turn-ms", f"{setting.longest_turn_ms:g}"] if setting.longest_turn_ms else []
        self._gpu = stack.enter_context(ManagedGPU(environment, simulated, options=options))
        self._sharing: dict[str, str] = {}
        if setting.mode == "mps" and not simulated:
            self._sharing = stack.enter_context(MpsDaemon(environment, self._gpu.gpu.uuid)).client_environment
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
        environment |= self._sharing
        kind, options = load(client.workload, client.options, simulated)
        name = f"{self._setting.name} {self._slots[-1]} {client.workload}"
        return [self._crew.start(name, kind, options, environment) for _ in range(client.processes)]

    def measure(self) -> dict[str, Any]:
        """Return the content of the setting's file."""
        header = raw_data.header("orion.bench.quotas.runs")
        before = self._alone()
        self._set_limits()
        every = [worker for workers in self._workers for worker in workers]
        settle, seconds = self._scenario.settle_seconds, self._scenario.seconds
        begin = time.monotonic() + PAUSE
        for worker in every:
            worker.command(do="loop", begin=begin, end=begin + settle + seconds)
        agent = self._follow(begin, begin + settle + seconds / 2, begin + settle + seconds)
        ends = iter(self._crew.gather(*every, seconds=PATIENCE + settle + seconds))
        self._set_limits(lifted=True)
        after = self._alone()
        return {
            **header,
            "setting": self._setting.model_dump(exclude_none=True),
            "window": [settle, settle + seconds],
            "monotonic_ns": round(begin * 1e9),
            "processes": [[worker.process_id for worker in workers] for workers in self._workers],
            # A client's rate differs by a percent from one minute to the next.
            "alone": [(first + last) / 2 for first, last in zip(before, after, strict=True)],
            "alone_before_and_after": [before, after],
            "agent": agent,
            "ends": [[raw_data.rounded(next(ends)["ends"]) for _ in workers] for workers in self._workers],
        }

    def _set_limits(self, lifted: bool = False) -> None:
        for slot, client in zip(self._slots, self._setting.clients, strict=True):
            if client.limit is not None:
                self._gpu.set_grant(slot, limit=1.0 if lifted else client.limit)

    def _alone(self) -> list[float]:
        """Return the steps a second of each client alone, with all its processes.

        Equal clients are measured, too: their kernels were calibrated beside others, so they may differ by percents.
        """
        rates = []
        end = LEAD + self._scenario.alone_seconds
        for workers in self._workers:
            begin = time.monotonic() + PAUSE
            for worker in workers:
                worker.command(do="loop", begin=begin, end=begin + end)
            replies = self._crew.gather(*workers, seconds=PATIENCE + end)
            steps = sum(completed_between(reply["ends"], LEAD, end) for reply in replies)
            if steps <= 0:
                raise Exhausted(
                    f"{workers[0].name} ended fewer than two steps alone in {end:g} s, so it has no rate; "
                    "raise alone_seconds"
                )
            rates.append(steps / self._scenario.alone_seconds)
        return rates

    def _follow(self, begin: float, middle: float, end: float) -> list[dict[str, Any]]:
        """Ask the agent each second what the slots had, until the end; change requests in the middle.

        Returns:
            one row a second: the time since ``begin``, the agent's CPU time, and by client what its slot was due, was
            charged, measured and waited so far, all in seconds; then how many of its launches waited on the CPU.
        """
        rows = []
        changing = any(client.later_request for client in self._setting.clients)
        moments = sorted({*np.arange(begin, end, 1.0), middle})
        for moment in moments:
            time.sleep(max(0.0, moment - time.monotonic()))
            if changing and moment == middle:
                self._change()
            slots = {slot.name: slot for slot in self._gpu.snapshot().slots}
            cpu, now = self._gpu.agent_cpu_seconds(), time.monotonic() - begin
            row = [raw_data.rounded(_used(slots[name])) for name in self._slots]
            rows.append({"at": now, "agent_cpu": cpu, "slots": row})
        return rows

    def _change(self) -> None:
        for slot, client in zip(self._slots, self._setting.clients, strict=True):
            if client.later_request is not None:
                self._gpu.set_grant(slot, request=client.later_request)


def _used(slot: agent_pb2.Slot) -> list[float]:
    usage = slot.usage
    times = usage.due_seconds, usage.charged_seconds, usage.measured_seconds, usage.waited_seconds
    return [*times, sum(client.gated_launches for client in slot.clients)]
