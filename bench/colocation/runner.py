"""Makes the runs of one GPU: commands the worker processes, and writes their replies or the failure to the run's file.

Processes start and end only while no run is in progress on any GPU of the host; see `host`.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any, Protocol, Self

from google.protobuf.json_format import MessageToDict

from orion.bench import raw_data
from orion.bench.colocation import gpus
from orion.bench.colocation.host import Host
from orion.bench.colocation.plan import PAIRED, PlannedRun, Unit
from orion.bench.colocation.posts import Client, Post, posts_of
from orion.bench.colocation.results import Results
from orion.bench.colocation.roster import Roster
from orion.bench.colocation.scenario import Scenario
from orion.bench.colocation.schedule import Schedule, rate_of, schedule
from orion.bench.colocation.shared_gpu import SharedGPU
from orion.bench.colocation.systems import Orion
from orion.bench.samples import completed_between
from orion.bench.workers.crew import Crew, Tick, Worker
from orion.errors import Exhausted, OrionError, Unavailable
from orion.hook.switching import Switcher

PAUSE = 0.3  # seconds between the command and the start of the run, for all workers to read the command
TAIL = 0.2  # seconds that be continues after the measured window
PATIENCE = 60.0  # seconds; a process hangs if it does not reply within three times the run's length plus this
LOOP_LEAD = 0.5  # seconds of a closed loop before its measured window
Claim = Callable[[PlannedRun], bool]
InTime = Callable[[PlannedRun, bool], bool]
"""Arguments: the run, and whether processes have to be started before it."""
FAILURES = (OrionError, OSError)


class Watcher(Protocol):
    """Is notified of the progress; the GPU's thread calls it."""

    def begins(self, device: gpus.Device, run: PlannedRun) -> None:
        """A run begins."""

    def ended(self, device: gpus.Device, run: PlannedRun, measured: dict[str, Any]) -> None:
        """A run has ended; the field `error` of the result says why the run failed."""


class Runner:
    """Makes the runs of one GPU; a context manager that ends all its processes at the end.

    Leave the context only when no run is in progress on any GPU, because ends of processes disturb measurements.
    """

    def __init__(
        self,
        device: gpus.Device,
        scenario: Scenario,
        results: Results,
        simulated: bool,
        host: Host,
        tick: Tick,
        watcher: Watcher,
    ) -> None:
        """Store the settings.

        Args:
            device: The GPU.
            scenario: The resolved scenario.
            results: The output folder.
            simulated: Whether the GPU is simulated.
            host: State that the runners of all GPUs share.
            tick: Called ten times a second while processes work; an exception from it ends the runner.
            watcher: Is notified of the progress.
        """
        self._device = device
        self._host = host
        self._scenario = scenario
        self._results = results
        self._simulated = simulated
        self._watcher = watcher
        self._stack = ExitStack()
        others = gpus.others(device, scenario.ranks, simulated)
        self._shared = {mode: SharedGPU(device, mode, simulated, others) for mode in ("timeslice", "mps")}
        self._switcher: Switcher | None = None
        self._crew = Crew(tick)
        self._roster = Roster(self._crew, self._shared, lambda: gpus.free_gib(device))
        named = (spec.policy_fields() for spec in scenario.systems.values() if isinstance(spec, Orion))
        self._policy_names = {name for fields in named for name in fields}

    def __enter__(self) -> Self:
        for gpu in self._shared.values():
            self._stack.enter_context(gpu)
        if not self._simulated:
            unhooked = self._shared["timeslice"].environment()
            self._switcher = self._stack.enter_context(Switcher(self._device.uuid, unhooked))
        self._stack.enter_context(self._crew)
        self._stack.enter_context(self._roster)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def lacks(self, runs: Iterable[PlannedRun]) -> bool:
        """Return whether a process has to be started for these runs."""
        return self._roster.lacks(self._posts(runs))

    def measure(self, unit: Unit, claim: Claim, in_time: InTime, ahead: Callable[[], Iterable[PlannedRun]]) -> None:
        """Make all runs of a unit that are still missing.

        If processes of a run are missing, the runner starts them together with the processes of all later runs, as far
        as the GPU's memory allows. Processes keep running until their memory is needed: a start takes longer than most
        runs, and idles the host's other GPUs.

        Args:
            unit: The runs.
            claim: Returns whether this runner should make a run; called once for each run.
            in_time: Returns whether a run would end in time, including a start of its processes. A run that would end
                too late is left out.
            ahead: Returns the runs that this GPU makes after this unit.
        """
        runs = [run for run in unit.runs if claim(run)]
        for number, run in enumerate(runs):
            measured = self._attempt(run, partial(_coming, runs[number + 1 :], ahead), in_time)
            if measured is not None:
                self._results.write(run.path, measured)
                self._watcher.ended(self._device, run, measured)
            elif run.kind == "hp-closed-loop":
                return  # without hp's capacity, the other runs have neither a rate nor a reference

    def _posts(self, runs: Iterable[PlannedRun]) -> Iterator[Post]:
        for run in runs:
            yield from posts_of(run, self._simulated)

    def _attempt(
        self, run: PlannedRun, coming: Callable[[], list[PlannedRun]], in_time: InTime
    ) -> dict[str, Any] | None:
        """Make a run; return the content of its file, or None if there is no time left for the run."""
        posts, gpu = posts_of(run, self._simulated), self._device.index
        if not in_time(run, self._roster.lacks(posts)):
            return None
        try:
            planned = self._schedule(run)
            self._roster.raise_if_given_up(posts)
        except (Exhausted, Unavailable) as error:  # no process was used, so there is nothing to clean up
            return {**self._described(run, None), "error": f"{run}: {error}"}
        if (wanted := self._wanted_change(posts, coming)) is not None:
            with self._host.changing(gpu, f"processes for {run}"):
                if not in_time(run, self._roster.lacks(posts)):
                    return None
                try:
                    self._change(posts, wanted)
                except FAILURES as error:
                    return self._failed(run, posts, error)
        try:
            with self._host.measuring(gpu):
                if not in_time(run, False):
                    return None
                self._watcher.begins(self._device, run)
                return self._run(run, posts, planned)
        except FAILURES as error:
            self._host.note(gpu, f"failure of {run}")
            with self._host.changing(gpu, f"end of processes after the failure of {run}"):
                return self._failed(run, posts, error)

    def _wanted_change(self, posts: list[Post], coming: Callable[[], list[PlannedRun]]) -> list[Post] | None:
        """Return the posts to fill now; None if nothing should start now.

        If another GPU starts processes or waits to start them, this GPU joins that phase. It then starts the processes
        of its later runs, too.
        """
        if not self._roster.lacks(posts) and not self._host.change_pending:
            return None
        wanted = list(dict.fromkeys([*posts, *self._posts(coming())]))
        return wanted if self._roster.lacks(wanted) else None

    def _change(self, posts: list[Post], wanted: list[Post]) -> None:
        self._roster.keep(lambda post: post in wanted)
        self._roster.free_memory_for(posts)
        self._roster.prepare(wanted)
        self._roster.fill(posts)
        for gpu in self._shared.values():
            gpu.note_servers()

    def _failed(self, run: PlannedRun, posts: list[Post], error: Exception) -> dict[str, Any]:
        """End the processes of a failed run, and the MPS daemon if the run used it; return the content of its file."""
        modes = {post.mode for post in posts}
        happened = "".join(self._shared[mode].what_happened() for mode in modes)
        self._roster.keep(lambda post: post not in posts and not ("mps" in modes and post.mode == "mps"))
        if "mps" in modes:
            self._shared["mps"].close_daemon()
        return {**self._described(run, None), "error": f"{run}: {error}{happened}"}

    def _run(self, run: PlannedRun, posts: list[Post], planned: Schedule) -> dict[str, Any]:
        filled = self._roster.filled(posts)
        clients = [client for post in posts for client in post.clients]
        workers = [worker for post in posts for worker in filled[post]]
        self._set_policy(run, posts, workers)
        self._switch_contexts(run)
        begin = time.monotonic() + PAUSE
        for client, worker in zip(clients, workers, strict=True):
            if client.role == "hp" and planned.arrivals is not None:
                worker.command(do="serve", begin=begin, arrivals=planned.arrivals)
            else:
                tail = 0.0 if client.role == "hp" else TAIL
                worker.command(do="loop", begin=begin, end=begin + planned.end + tail)
        replies = self._crew.gather(*workers, seconds=3 * planned.end + PATIENCE)
        measured = self._written(run, planned, list(zip(clients, workers, replies, strict=True)))
        return {**measured, "disturbances": self._host.disturbances(begin - PAUSE, begin)}

    def _switch_contexts(self, run: PlannedRun) -> None:
        """Switch contexts, so that all runs begin with the GPU in the same state; see `orion.hook.switching`."""
        if self._switcher is None:
            return
        self._switcher.switch()
        if isinstance(run.spec, Orion) and run.spec.refresh_ms is not None:
            self._switcher.every(run.spec.refresh_ms)

    def _set_policy(self, run: PlannedRun, posts: list[Post], workers: list[Worker]) -> None:
        if not isinstance(run.spec, Orion):
            return
        fields = run.spec.policy_fields()
        if run.spec.mode == "threads":
            process = workers[0].whole_process()
            process.command(do="policy", policy=fields["policy"], max_slowdown=fields.get("max_slowdown", 1.0))
            self._crew.gather(process, seconds=30)
        else:
            self._shared[posts[0].mode].set_policy(run.spec, self._policy_names)

    def _schedule(self, run: PlannedRun) -> Schedule:
        if run.closed:
            end = LOOP_LEAD + self._scenario.closed_loop_seconds
            return Schedule(None, None, LOOP_LEAD, end)
        if run.kind == "be-alone":
            return Schedule(None, None, LOOP_LEAD, LOOP_LEAD + self._scenario.be_alone_seconds)
        capacity = self._capacity(run)
        arrivals, lead = run.experiment.arrivals, self._scenario.lead_seconds
        rate = rate_of(arrivals, capacity)
        seed = f"{self._scenario.seed}/{run.hp_id}/{run.round}"
        return schedule(arrivals, rate, run.requests, lead, 1 / capacity, seed)

    def _capacity(self, run: PlannedRun) -> float:
        """Return the requests a second of hp's closed loop; the loop ran in the same round and on the same GPU."""
        first = self._results.read(f"runs/{run.hp_id}/{run.round}/hp-closed-loop.json.gz")
        if first is None:
            raise Exhausted("hp's capacity is unknown, because its closed loop of this round failed")
        begin, end = first["window"]
        capacity: float = completed_between(first["ends"], begin, end) / (end - begin)
        if capacity <= 0:
            raise Exhausted(f"hp completed fewer than two steps in a closed loop of {end - begin:g} s")
        return capacity

    def _described(self, run: PlannedRun, planned: Schedule | None) -> dict[str, Any]:
        """Return the fields of a run's file that are known before the run."""
        has_hp, open_loop = "hp" in run.sides, not run.closed
        hp = {**run.experiment.hp.model_dump(), "id": run.hp_id, "about": {}} if has_hp else None
        return {
            "system": run.system,
            "system_spec": run.spec.model_dump(mode="json", exclude_none=True),
            "round": run.round,
            "device": self._device.to_json(),
            "hp": hp,
            "be": [],
            "load": getattr(run.experiment.arrivals, "load", None) if has_hp and open_loop else None,
            "rate": planned.rate if planned else None,
            "arrivals": [],
            "starts": [],
            "ends": [],
            "window": [planned.lead, planned.end] if planned else [0.0, 0.0],
            "gpu": None,
            "disturbances": [],
            "error": None,
        }

    def _written(
        self, run: PlannedRun, planned: Schedule, replies: list[tuple[Client, Worker, dict[str, Any]]]
    ) -> dict[str, Any]:
        measured = self._described(run, planned)
        for client, worker, reply in replies:
            ends = raw_data.rounded(reply["ends"])
            if client.role == "be":
                measured["be"].append(self._be(run, len(measured["be"]), worker, ends))
                continue
            measured["hp"]["about"] = worker.about
            measured["hp"]["ran"] = [client.kind, json.loads(client.options)]
            measured["arrivals"] = raw_data.rounded(planned.arrivals or [])
            measured["starts"] = raw_data.rounded(reply.get("starts", [0.0, *ends[:-1]]))
            measured["ends"] = ends
        if isinstance(run.spec, Orion) and run.spec.mode != "threads":
            mode = "mps" if run.spec.mode == "mps" else "timeslice"
            measured["gpu"] = MessageToDict(self._shared[mode].agent(run.spec.domain, run.spec.baselines).snapshot())
        return measured

    def _be(self, run: PlannedRun, number: int, worker: Worker, ends: list[float]) -> dict[str, Any]:
        assert run.entry is not None
        load = {"workload": run.entry.workload, "options": run.entry.options}
        several = f"#{number}" if run.entry.count > 1 and run.kind != "be-alone" else ""
        name = f"{run.be_id}{several}"
        fields = {"id": name, **load, "about": worker.about, "ends": ends, "amount": worker.about["amount"]}
        fields["request"] = run.entry.requests[number] if run.entry.requests and run.kind in PAIRED else 0.0
        return fields


def _coming(rest: list[PlannedRun], ahead: Callable[[], Iterable[PlannedRun]]) -> list[PlannedRun]:
    return [*rest, *ahead()]
