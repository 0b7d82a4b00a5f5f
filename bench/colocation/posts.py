"""A post describes one process that a run needs: workload, slot, and additions to command and environment.

A process fills a post if it was started as the post describes. The same process fills all equal posts, so a process
that several systems can use starts only once.
"""

import json
from dataclasses import dataclass
from typing import Any, Literal

from orion.bench.colocation.plan import PlannedRun
from orion.bench.colocation.scenario import Load
from orion.bench.colocation.systems import Foreign, Mps, Orion, Side, in_threads, needs_mps
from orion.bench.workloads import KINDS
from orion.bench.workloads import load as resolve


@dataclass(frozen=True)
class Client:
    """A client in a process: the whole process or, in mode threads, one thread."""

    role: str
    kind: str
    options: str
    """JSON."""

    def to_json(self) -> dict[str, Any]:
        """Return the client's entry on the command line of a process with threads."""
        return {"role": self.role, "kind": self.kind, "options": json.loads(self.options)}


@dataclass(frozen=True)
class Post:
    """The description of one process."""

    mode: str
    """"timeslice" or "mps": how the process's context shares the GPU."""
    domain: str | None
    """Name of the process's agent, see `Orion.domain`; None: no agent."""
    baselines: bool
    """Whether the hook and the agent of the process have the baselines: schedulers of other publications."""
    role: str
    index: int
    """Index of its slot, among the slots of its role."""
    request: float
    """The part of the GPU's time that the slot requests; 0: none."""
    clients: tuple[Client, ...]
    threads: Literal["no", "plain", "scheduled"]
    """no: one client; plain: clients are threads without Orion; scheduled: threads that Orion schedules."""
    environment: tuple[tuple[str, str], ...]
    prefix: tuple[str, ...]
    service: tuple[str, ...]

    @property
    def ranks(self) -> int:
        """Return the number of GPUs that the process and those that it starts use."""
        return max(int(json.loads(client.options).get("ranks", 1)) for client in self.clients)

    @property
    def memory_gib(self) -> float:
        """Return an upper estimate of the process's GPU memory."""
        return sum(KINDS[client.kind].gib for client in self.clients)

    @property
    def name(self) -> str:
        """Name for messages."""
        if self.threads != "no":
            loads = ", ".join(f"{client.role} {client.kind}" for client in self.clients)
            return f"with {'threads' if self.threads == 'scheduled' else 'plain threads'} {loads}"
        number = f" {self.index}" if self.index else ""
        hooked = "" if self.domain is None else f" under the hook{' with baselines' * self.baselines}"
        return f"{self.role}{number} {self.clients[0].kind}{hooked}{' in mps' if self.mode == 'mps' else ''}"


def posts_of(run: PlannedRun, simulated: bool) -> list[Post]:
    """Return the processes of a run, hp first.

    Args:
        run: The run to measure.
        simulated: Replace workloads by their stand-ins.
    """
    if in_threads(run.spec):
        return [_threads(run, simulated)]
    posts = []
    if "hp" in run.sides:
        posts.append(_post(run, "hp", 0, simulated))
    if "be" in run.sides and run.entry is not None:
        # A run of be alone needs one process of an entry: that process gets the throughput that several would share.
        posts += [
            _post(run, "be", index, simulated) for index in range(1 if run.kind == "be-alone" else run.entry.count)
        ]
    return posts


def _post(run: PlannedRun, role: str, index: int, simulated: bool) -> Post:
    spec = run.spec
    side: Side = spec.hp if role == "hp" else spec.be
    hooked = isinstance(spec, Orion)
    requests = run.entry.requests if run.entry and role == "be" and hooked else []
    return Post(
        mode="mps" if needs_mps(spec) else "timeslice",
        domain=spec.domain if isinstance(spec, Orion) else None,
        baselines=isinstance(spec, Orion) and spec.baselines,
        role=role,
        index=index,
        request=requests[index] if requests else 0.0,
        clients=(_client(run, role, simulated),),
        threads="no",
        environment=_environment(spec, side, role),
        prefix=tuple(side.prefix),
        service=tuple(spec.service) if isinstance(spec, Foreign) else (),
    )


def _threads(run: PlannedRun, simulated: bool) -> Post:
    count = run.entry.count if run.entry else 0
    clients = [_client(run, "hp", simulated)] + [_client(run, "be", simulated)] * count
    return Post(
        mode="timeslice", domain=None, baselines=isinstance(run.spec, Orion) and run.spec.baselines,
        role="hp", index=0, request=0.0,
        clients=tuple(clients), threads="scheduled" if isinstance(run.spec, Orion) else "plain",
        environment=_environment(run.spec, run.spec.hp, "hp"),
        prefix=tuple(run.spec.hp.prefix), service=(),
    )  # fmt: skip


def _client(run: PlannedRun, role: str, simulated: bool) -> Client:
    load: Load = run.experiment.hp if role == "hp" or run.entry is None else run.entry
    options = dict(load.options)
    if role == "hp" and isinstance(run.spec, Mps) and run.spec.hp_stream_priority:
        options["stream_priority"] = run.spec.hp_stream_priority
    kind, resolved = resolve(load.workload, options, simulated)
    return Client(role, kind, json.dumps(resolved, sort_keys=True))


def _environment(spec: Any, side: Side, role: str) -> tuple[tuple[str, str], ...]:
    variables: dict[str, str] = {}
    if isinstance(spec, Mps) and role == "be":
        if spec.be_client_priority is not None:
            variables["CUDA_MPS_CLIENT_PRIORITY"] = str(spec.be_client_priority)
        if spec.be_active_thread_percentage is not None:
            variables["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = f"{spec.be_active_thread_percentage:g}"
    return tuple(sorted({**variables, **side.environment}.items()))
