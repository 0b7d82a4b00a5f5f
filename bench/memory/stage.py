"""A GPU of a chosen size under a private agent, and the tenants of one setting."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orion.bench.managed import ManagedGPU, machine
from orion.bench.memory.scenario import AgentCost, Driver, Moving, Server, Setting
from orion.bench.workers.crew import Crew, Worker
from orion.errors import OrionError, Unavailable
from orion.node_agent.api import agent_pb2

LEAD = 0.3
""" Seconds between a command and its begin, for all workers to read it. """
PATIENCE = 120.0
""" Seconds that everything may take longer than planned. """
_LOOK_SECONDS = 0.01
_MORE_MIB = 128
""" What a tenant's limit is above what it asks for and the driver takes. """
_MODULE = "orion.bench.memory.tenant"


@dataclass(frozen=True)
class Tenant:
    """One process with a slot of its own."""

    worker: Worker
    slot: str


class Stage:
    """The GPU, its agent and the processes of one setting.

    Args:
        stack: ends all of it.
        driver: what the driver takes.
        setting: the GPU's size.
        simulated: on a simulated GPU.
        say: prints a line of progress.
    """

    def __init__(
        self, stack: ExitStack, driver: Driver, setting: Setting, simulated: bool, say: Callable[[str], None]
    ) -> None:
        self.simulated, self._driver, self._say, self._name = simulated, driver, say, setting.name
        self._kernels = max(1, round(setting.step_ms))
        self._step_ms = setting.step_ms
        self._base = stack.enter_context(machine(simulated))
        self._base |= {
            "ORION_SIM_MEMORY": str(round(setting.gpu_gib * (1 << 30))),
            "ORION_SIM_CONTEXT_MEMORY": str(driver.context_mib << 20),
            "ORION_SIM_OUT_MS_PER_GIB": f"{driver.out_ms_per_gib:g}",
            "ORION_SIM_BACK_MS_PER_GIB": f"{driver.back_ms_per_gib:g}",
            "ORION_SIM_LOCK_US": str(driver.lock_us),
            "CUBLAS_WORKSPACE_CONFIG": ":4096:8",  # torch's deterministic algorithms need it
        }
        options = ["--parking-stay-factor", f"{setting.stay_factor:g}"]
        if isinstance(setting, Moving):
            options += ["--longest-turn-ms", f"{setting.turn_ms:g}"]
        if isinstance(setting, AgentCost):
            self._base["ORION_SIM_GPUS"] = str(setting.gpus)
        self.gpu = stack.enter_context(ManagedGPU(self._base, simulated, options=options))
        self.crew = stack.enter_context(Crew())
        self._ballast = 0
        if not simulated:
            ballast = self.outside("ballast", {"leave_mib": round(setting.gpu_gib * 1024)})
            self._ballast = ballast.process_id
            self.say(f"a ballast holds {ballast.about['details']['mib']} MiB")

    def say(self, text: str) -> None:
        """Print a line of progress."""
        self._say(f"{self._name}: {text}")

    def outside(self, kind: str, options: dict[str, Any]) -> Worker:
        """Start a process without the hook, and wait until it is set up."""
        worker = self.crew.start(f"{self._name} {kind}", kind, options, self._base, module=_MODULE)
        self.crew.ready(worker)
        return worker

    def sampler(self) -> Worker:
        """Start a process that asks the driver what the tenants hold."""
        return self.outside("sampler", {"simulated": self.simulated, "but": self._ballast})

    def slot(self, role: str, uuid: str = "", **memory: Any) -> dict[str, str]:
        """Open a slot of a GPU, or the first; return its processes' environment. Fields: those of OpenSlotRequest."""
        return self.gpu.client_environment(role, memory=memory, uuid=uuid)

    def start(self, kind: str, options: dict[str, Any], environment: dict[str, str]) -> Tenant:
        """Start a process in a slot, without waiting for it."""
        slot = Path(environment["ORION_ROOT"]).name
        return Tenant(self.crew.start(f"{self._name} {slot} {kind}", kind, options, environment, module=_MODULE), slot)

    def ready(self, *tenants: Tenant) -> None:
        """Wait until these are set up and have joined the agent."""
        self.crew.ready(*(tenant.worker for tenant in tenants))
        for tenant in tenants:
            self.gpu.wait_for_process(tenant.worker.process_id)

    def begun(self, tenant: Tenant) -> None:
        """Wait until a new trainer is parked or has taken its memory.

        Before it joins, nobody can ask it to wait: without room for its context it fails, as it does on a GPU.
        """
        deadline = time.monotonic() + PATIENCE
        while True:
            process, least = tenant.worker.process_id, self._driver.context_mib << 20
            for slot in (slot for gpu in self.gpu.gpus() for slot in gpu.slots):
                held = sum(client.memory_bytes for client in slot.clients)
                if process in [client.process_id for client in slot.clients] and (
                    slot.parking.state == "parked" or held + least >= slot.memory_limit_bytes // 2
                ):
                    return
            if not tenant.worker.alive() or time.monotonic() > deadline:
                raise tenant.worker.failure("did not begin")
            time.sleep(_LOOK_SECONDS)

    def end(self, tenant: Tenant) -> None:
        """End a tenant, and close its slot. Its process may be killed, which only a simulated GPU surely survives."""
        self.crew.end([tenant.worker])
        self.gpu.close_slot(tenant.slot, PATIENCE)

    def trainer(self, gib: float, torch: bool = False, way: str = "park", uuid: str = "") -> Tenant:
        """Start a be trainer without waiting for it.

        Args:
            gib: the memory that it holds.
            torch: a trainer of PyTorch.
            way: how it makes room: park; unified; plain: it allocates managed memory itself; unmanaged: the same
                without the hook.
            uuid: its GPU; empty: the first.
        """
        mib = round(gib * 1024)
        if way == "unmanaged":
            worker = self.outside("trainer", self._options(mib, managed=True))
            return Tenant(worker, f"unmanaged-{worker.process_id}")
        shares = {"memory_parks": way == "park", "memory_unified": way == "unified"}
        environment = self.slot("be", uuid, **shares, memory_limit_bytes=self.limit(mib))
        if torch:
            return self.start("torch-trainer", {"mib": mib}, environment)
        return self.start("trainer", self._options(mib, managed=way == "plain"), environment)

    def _options(self, mib: int, managed: bool) -> dict[str, Any]:
        kernels = {"kernels": self._kernels, "kernel_ms": self._step_ms / self._kernels}
        return {"simulated": self.simulated, "mib": mib, "managed": managed, **kernels}

    def server(self, hp: Server, grows_mib: float = 0.0) -> Tenant:
        """Start the hp server, and wait until it is set up."""
        mib = round(hp.gib * 1024)
        limit = self.limit(mib + round(grows_mib))
        environment = self.slot("hp", memory_wait_ms=30_000, memory_limit_bytes=limit, memory_request_bytes=mib << 20)
        options = {"simulated": self.simulated, "mib": mib, "kernel_ms": hp.kernel_ms}
        tenant = self.start("server", options, environment)
        self.ready(tenant)
        return tenant

    def limit(self, mib: int) -> int:
        """Return the limit, in bytes, of a slot whose program takes so much."""
        return (mib + self._driver.context_mib + _MORE_MIB) << 20

    def parking(self, tenant: Tenant) -> agent_pb2.Parking:
        """Return what the agent says about a tenant's memory."""
        return next(slot.parking for slot in self.gpu.snapshot().slots if slot.name == tenant.slot)

    def move(self, tenant: Tenant, away: bool) -> float:
        """Ask a tenant to leave, or let it back; return after how many seconds the agent says that it has.

        Raises:
            Unavailable: it refuses, or takes too long.
        """
        begin, wanted = time.monotonic(), "parked" if away else ""
        try:
            self.gpu.park(tenant.slot, away)
        except OrionError:
            if tenant.worker.alive():
                raise
            raise tenant.worker.failure("has ended") from None
        while (parking := self.parking(tenant)).state != wanted or parking.wished != away:
            if parking.state in ("refused", "lost") or time.monotonic() - begin > PATIENCE:
                raise Unavailable(f"{tenant.slot} is {parking.state or 'on the GPU'}: {parking.reason or 'no answer'}")
            time.sleep(_LOOK_SECONDS)
        return time.monotonic() - begin

    def stays(self, tenants: Iterable[Tenant]) -> list[bool]:
        """Return for each tenant whether its processes are on the GPU."""
        here = {slot.name for slot in self.gpu.snapshot().slots if slot.clients and not slot.parking.state}
        return [tenant.slot in here for tenant in tenants]

    def finish(self, tenants: Sequence[Tenant], owed: Mapping[str, int]) -> list[dict[str, Any]]:
        """Wait for the last reply of each; let each process end as soon as it has replied, so that others come back.

        A process that has been parked ends by itself: to kill one is said to hang hosts with a real GPU.

        Args:
            tenants: those that have been commanded.
            owed: how many replies each owes, by slot.
        """
        waiting, found = {tenant.slot: tenant for tenant in tenants}, dict[str, dict[str, Any]]()
        left, deadline = dict(owed), time.monotonic() + PATIENCE
        while waiting:
            for slot, tenant in list(waiting.items()):
                while left[slot] and (reply := tenant.worker.read()) is not None:
                    found[slot] = reply
                    left[slot] -= 1
                if not left[slot]:
                    tenant.worker.process.close_commands()
                    del waiting[slot]
            if time.monotonic() > deadline:
                raise next(iter(waiting.values())).worker.failure("did not come back")
            time.sleep(_LOOK_SECONDS)
        for tenant in tenants:
            while tenant.worker.alive() and time.monotonic() < deadline:
                time.sleep(_LOOK_SECONDS)
        return [found[tenant.slot] for tenant in tenants]
