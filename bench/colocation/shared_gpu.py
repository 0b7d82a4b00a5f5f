"""One GPU in one mode: the environments in which a client finds it there, unhooked or in a slot of a private agent.

In mode `timeslice` clients get an empty MPS pipe directory, so they meet no daemon of the machine's. In `mps` they get
that of a daemon of this measurement's own, started with the first of them. A simulated GPU is a machine of its own in
each mode, since it is made in one.
"""

import contextlib
import tempfile
from types import TracebackType
from typing import Self

from orion.bench.colocation.gpus import Device
from orion.bench.colocation.mps import MpsDaemon, MpsError
from orion.bench.colocation.systems import Orion
from orion.bench.managed import ManagedGPU, hooked, machine
from orion.hook import policy_table

Environment = dict[str, str]


class SharedGPU:
    """A context manager; daemon and agents are started when first needed and end with it."""

    def __init__(self, device: Device, mode: str, simulated: bool) -> None:
        """Args: mode is "timeslice" or "mps"."""
        self._device = device
        self._mode = mode
        self._simulated = simulated
        self._stack = contextlib.ExitStack()
        self._base: Environment = {}
        self._nobody = ""
        self._daemon: MpsDaemon | None = None
        self._servers: set[int] = set()
        self._agents: dict[str, ManagedGPU] = {}
        self._slots: dict[tuple[str, str, int, float], Environment] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close_daemon()
        self._stack.close()

    def environment(self) -> Environment:
        """Return that of unhooked clients."""
        return {**self._machine(), **self._sharing()}

    def slot_environment(self, domain: str, baselines: bool, role: str, index: int, weight: float) -> Environment:
        """Return that of hooked clients of one slot.

        Args:
            domain: Each has an agent of its own; clients of one never meet those of another.
            baselines: Whether its agent and clients know published schedulers.
            role: "hp" or "be".
            index: Clients of different indices are in different slots.
            weight: Of the slot; 0: the agent's default.
        """
        key = (domain, role, index, weight)
        if key not in self._slots:
            self._slots[key] = self.agent(domain, baselines).client_environment(role, weight)
        return {**self._slots[key], **self._sharing()}

    def preloaded_environment(self, baselines: bool) -> Environment:
        """Return that of processes whose threads are the clients: under the hook, where no agent answers."""
        if not self._nobody:
            self._nobody = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="orion-", dir="/tmp"))
        base = self.environment()
        return {**base, **hooked(base, baselines), "ORION_ROOT": self._nobody}

    def agent(self, domain: str, baselines: bool) -> ManagedGPU:
        """Return the agent of a domain, started if it is not yet."""
        if domain not in self._agents:
            managed = ManagedGPU(self._machine(), self._simulated, self._device.uuid, baselines)
            self._agents[domain] = self._stack.enter_context(managed)
        return self._agents[domain]

    def set_policy(self, spec: Orion, reset: set[str]) -> None:
        """Tell a system's agent how to share from now on.

        Args:
            spec: The system.
            reset: Fields that some other system names: without a word here they are as by default.
        """
        table = policy_table.BENCH if spec.baselines else policy_table.RELEASE
        reported = {row.name: row.default for row in table.all_rows if row.name in reset}
        self.agent(spec.domain, spec.baselines).set_policy(**{**reported, **spec.policy_fields()})

    def note_servers(self) -> None:
        """Remember the MPS servers, to tell later whether they are still the same."""
        if self._daemon is not None:
            with contextlib.suppress(MpsError):  # told with the run that fails for it
                self._servers = self._daemon.servers()

    def what_happened(self) -> str:
        """Say what an MPS server's death has to do with a failed run; empty in other modes."""
        if self._daemon is None:
            return ""
        try:
            dead = self._servers - self._daemon.servers()
        except MpsError as error:
            return f"; {error}, and its clients with it"
        said = self._daemon.last_words()
        log = f" (its log ends: {said})" if said else ""
        if dead:
            return f"; the MPS server died, and its clients share its fate{log}"
        return f"; clients of one MPS server share its fate, so all of them are started again{log}"

    def close_daemon(self) -> None:
        """End the MPS daemon if there is one; the next client gets a fresh one."""
        daemon, self._daemon, self._servers = self._daemon, None, set()
        if daemon is not None:
            daemon.__exit__(None, None, None)

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
            self._base = {name: value for name, value in found.items() if not name.startswith("CUDA_MPS_")}
            if not self._simulated:
                nobody = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="orion-", dir="/tmp"))
                self._base |= {"CUDA_VISIBLE_DEVICES": self._device.uuid, "CUDA_MPS_PIPE_DIRECTORY": nobody}
        return self._base
