"""One GPU in one mode: the environments of its clients, without the hook or in a slot of a private agent.

In mode `timeslice` clients get an empty MPS pipe directory, so they do not find an MPS daemon of the machine. In mode
`mps` they get the pipe directory of a private daemon, which starts with the first client. A simulated GPU is created in
one mode, so each mode has its own simulated GPU.
"""

import contextlib
import tempfile
from collections.abc import Sequence
from typing import Self

from orion.bench.colocation.gpus import Device
from orion.bench.colocation.mps import MpsDaemon
from orion.bench.colocation.systems import Orion
from orion.bench.managed import ManagedGPU, hooked, machine
from orion.errors import NotFound, Unavailable
from orion.hook import policy_table

Environment = dict[str, str]


class SharedGPU:
    """A context manager; its MPS daemon and agents start when first needed, and end with the context."""

    def __init__(self, device: Device, mode: str, simulated: bool, others: Sequence[Device] = ()) -> None:
        """Store the settings.

        Args:
            device: The GPU.
            mode: "timeslice" or "mps".
            simulated: Whether the GPU is simulated.
            others: The machine's other GPUs, for the ranks of jobs.
        """
        self._others = others
        self._device = device
        self._mode = mode
        self._simulated = simulated
        self._stack = contextlib.ExitStack()
        self._base: Environment = {}
        self._empty_root = ""
        self._daemon: MpsDaemon | None = None
        self._servers: set[int] = set()
        self._agents: dict[str, ManagedGPU] = {}
        self._slots: dict[tuple[str, str, int, float, int], Environment] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close_daemon()
        self._stack.close()

    def environment(self, ranks: int = 1) -> Environment:
        """Return the environment of clients without the hook; `ranks`: number of GPUs that each uses."""
        return {**self._machine(), **self._sharing(), **self._visible(ranks)}

    def slot_environment(
        self, domain: str, baselines: bool, role: str, index: int, request: float, ranks: int = 1
    ) -> Environment:
        """Return the environment of hooked clients in one slot.

        Args:
            domain: Name of the agent; clients of different domains never run at the same time.
            baselines: Whether the agent and its clients have the baselines: schedulers of other publications.
            role: "hp" or "be".
            index: Index of the slot, among the slots of the role.
            request: The part of the GPU's time that the slot requests; 0: none.
            ranks: Number of GPUs that a client and the processes that it starts use.
        """
        key = (domain, role, index, request, ranks)
        if key not in self._slots:
            self._slots[key] = self.agent(domain, baselines).client_environment(role, request, ranks > 1)
        return {**self._slots[key], **self._sharing(), **self._visible(ranks)}

    def preloaded_environment(self, baselines: bool) -> Environment:
        """Return the environment of processes whose threads are the clients: with the hook, but without an agent."""
        if not self._empty_root:
            self._empty_root = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="orion-", dir="/tmp"))
        base = self.environment()
        return {**base, **hooked(base, baselines), "ORION_ROOT": self._empty_root}

    def agent(self, domain: str, baselines: bool) -> ManagedGPU:
        """Return the agent of a domain; start it if necessary."""
        if domain not in self._agents:
            managed = ManagedGPU(self._machine(), self._simulated, self._device.uuid, baselines)
            self._agents[domain] = self._stack.enter_context(managed)
        return self._agents[domain]

    def set_policy(self, spec: Orion, reset: set[str]) -> None:
        """Set the policy of a system's agent.

        Args:
            spec: The system.
            reset: Policy fields that other systems set; a field that this system does not set gets its default.
        """
        table = policy_table.BENCH if spec.baselines else policy_table.RELEASE
        defaults = {row.name: row.default for row in table.all_rows if row.name in reset}
        self.agent(spec.domain, spec.baselines).set_policy(**{**defaults, **spec.policy_fields()})

    def note_servers(self) -> None:
        """Record the process ids of the MPS servers; `what_happened` compares them after a failure."""
        if self._daemon is not None:
            with contextlib.suppress(Unavailable):  # the daemon has ended: the run fails and reports that
                self._servers = self._daemon.servers()

    def what_happened(self) -> str:
        """Return what happened to MPS in a failed run, as the end of a sentence; empty if there is no MPS daemon."""
        if self._daemon is None:
            return ""
        try:
            dead = self._servers - self._daemon.servers()
        except Unavailable as error:
            return f"; {error}, and its clients have ended, too"
        end = self._daemon.end_of_log()
        log = f" (its log ends: {end})" if end else ""
        if dead:
            return f"; the MPS server died, and its clients with it{log}"
        return f"; a fault of one client ends all clients of its MPS server, so all of them are started again{log}"

    def close_daemon(self) -> None:
        """End the MPS daemon, if there is one; the next client starts a new daemon."""
        daemon, self._daemon, self._servers = self._daemon, None, set()
        if daemon is not None:
            daemon.__exit__(None, None, None)

    def _visible(self, ranks: int) -> Environment:
        if ranks == 1 or self._simulated:
            return {}
        if ranks > 1 + len(self._others):
            raise NotFound(f"a job has {ranks} ranks, and this machine has {1 + len(self._others)} GPUs")
        used = [self._device, *self._others][:ranks]
        return {"CUDA_VISIBLE_DEVICES": ",".join(device.uuid for device in used)}

    def _sharing(self) -> Environment:
        if self._mode != "mps" or self._simulated:
            return {}
        if self._daemon is None:
            self._daemon = MpsDaemon(self._machine(), self._device.uuid).__enter__()
        return self._daemon.client_environment

    def _machine(self) -> Environment:
        if not self._base:
            seed = f"{self._device.index}" if self._simulated else ""
            found = self._stack.enter_context(machine(self._simulated, self._mode, seed))
            if self._simulated and self._others:
                found["ORION_SIM_GPUS"] = str(1 + len(self._others))
            self._base = {name: value for name, value in found.items() if not name.startswith("CUDA_MPS_")}
            if not self._simulated:
                no_daemon = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="orion-", dir="/tmp"))
                self._base |= {"CUDA_VISIBLE_DEVICES": self._device.uuid, "CUDA_MPS_PIPE_DIRECTORY": no_daemon}
        return self._base
