"""What an agent reports to the API server: GPUDevices, Events about unmanaged processes and faults, and metrics.

The parts run and fail independently: without the API server, the agent still counts unmanaged processes and detects
other device plugins.
"""

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass

from orion.crds.device import device_name
from orion.crds.device_status import GPUDeviceStatus
from orion.crds.policy import Mode
from orion.node_agent import snapshots
from orion.node_agent.advertising.advertising import Verdict
from orion.node_agent.agent import Agent
from orion.node_agent.cluster.context import Context
from orion.node_agent.cluster.reporting.client_ratios import ClientRatios
from orion.node_agent.cluster.reporting.coexistence import REASON, Coexistence
from orion.node_agent.cluster.reporting.cordons import Cordons
from orion.node_agent.cluster.reporting.device_events import post_changes, post_node_event, post_pod_events
from orion.node_agent.cluster.reporting.device_status import gone_status, status_of
from orion.node_agent.cluster.reporting.events import Events, device, node
from orion.node_agent.cluster.reporting.gpu_devices import Device, GpuDevices
from orion.node_agent.cluster.reporting.metrics import ClusterMetrics
from orion.node_agent.cluster.reporting.seen import Seen
from orion.node_agent.cluster.reporting.slotless import SlotlessContainers
from orion.node_agent.cluster.reporting.unmanaged import UnmanagedProcesses
from orion.node_agent.gpus.keeper import GONE
from orion.node_agent.service import answers
from orion.node_agent.snapshots import GpuView

_NOT_REPORTED = ("NotIncluded", GONE.reason)
""" Reasons of verdicts (advertising.py). The agent does not report GPUs with one of these reasons. """
_REPORTED_OF_NODES = ("MIGEnabled", REASON)
""" Reasons of verdicts that also become Events of the node: people see on the node that slots are missing. """


@dataclass(frozen=True)
class _Looked:
    """The state of a GPU at the last check."""

    view: GpuView
    verdict: Verdict
    hp_busy_ratio: float


class Reporting:
    """The reports of one agent in a cluster."""

    def __init__(self, context: Context) -> None:
        self._agent: Agent = context.agent
        self._node, self._state = context.node, context.state
        self.events = Events(context.server, context.node)
        self.unmanaged = UnmanagedProcesses(context.agent, context.state, self.events, context.node, self._changed)
        self.slotless = SlotlessContainers(context.state, self.events)
        self.coexistence = Coexistence(context.agent, context.pod_resources)
        self.devices = GpuDevices(
            context.server,
            context.node,
            Cordons(context.agent.root.cordons),
            self._look,
            self._make,
            self._reported,
            context.agent.advertising.changed,
        )
        self._looked: dict[str, _Looked] = {}
        self._ratios: dict[str, ClientRatios] = {}
        context.agent.advertising.add_judge(self.coexistence)
        context.agent.advertising.add_judge(self.devices)
        context.agent.modes.names = self._names
        context.state.on_change(self._changed)
        context.agent.registry.register(
            ClusterMetrics(
                context.agent.gpus, context.state, self.unmanaged, self.coexistence, self.devices, self.events
            )
        )

    async def run(self) -> None:
        """Report until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for part in (self.events, self.unmanaged, self.slotless, self.coexistence, self.devices):
                tasks.create_task(part.run())

    def _changed(self) -> None:
        self.devices.wake()

    async def _look(self) -> Iterable[str]:
        """Read the state of all GPUs, post Events, and return the UUIDs of the GPUs that Orion manages."""
        view = await snapshots.take(self._agent)
        advertised = self._agent.advertising.look()
        verdicts = {each.gpu.uuid: (each.verdict, each.hp_busy_ratio) for each in advertised.gpus}
        verdicts |= {
            each.uuid: (Verdict(cordoned=True, reason=each.reason, message=each.message), 0.0)
            for each in advertised.not_advertised
        }
        self._looked = {
            each.gpu.uuid: _Looked(each, *verdicts[each.gpu.uuid]) for each in view.gpus if each.gpu.uuid in verdicts
        }
        self._post_events()
        return [uuid for uuid, looked in self._looked.items() if looked.verdict.reason not in _NOT_REPORTED]

    def _make(self, uuid: str, known: Device) -> GPUDeviceStatus:
        """Return a device's status at the last check. An empty UUID: the device's GPU is not on this node."""
        if not uuid:
            return gone_status(known.status, *self._why_gone(known), known.generation)
        looked = self._looked[uuid]
        modes = self._agent.modes
        modes.want(uuid, known.spec.mode.value, (known.status.mode or Mode.TIMESLICE).value)
        seen = Seen(
            node=self._node,
            spec=known.spec,
            generation=known.generation,
            view=looked.view,
            state=self._state.of(uuid),
            verdict=looked.verdict,
            hp_busy_ratio=looked.hp_busy_ratio,
            unmanaged=self.unmanaged.of(uuid),
            mode=Mode(modes.mode(uuid)),
            mode_pending=modes.pending(uuid),
            ratios=self._ratios.setdefault(uuid, ClientRatios()).take(looked.view, time.monotonic()),
            agent_version=answers.version(),
            giver=ownership.giver if (ownership := self._agent.advertising.ownership) is not None else None,
        )
        return status_of(seen, known.status.conditions or [])

    def _names(self, uuid: str) -> list[str]:
        """Return the names of a GPU's users: pods, and processes in slots that no pod holds."""
        held = {slot.name: slot for slot in self._state.of(uuid).held}
        names = [f"pod {slot.holder.name}" if slot.holder else f"slot {slot.name}" for slot in held.values()]
        for client in self._agent.gpus[uuid].shared_gpu.clients.values():
            if client.slot.name not in held:
                names.append(f"process {client.process_id} ({client.command})")
        return sorted(set(names))

    def _why_gone(self, known: Device) -> tuple[str, str]:
        for uuid, looked in self._looked.items():
            if device_name(uuid) == known.name:
                return looked.verdict.reason, looked.verdict.message
        health = self._agent.health
        if health is not None and health.unavailable:
            return "DriverAway", health.unavailable
        return GONE.reason, GONE.message

    # -- Events --------------------------------------------------------------------------------------------------------

    def _reported(self, known: Device, status: GPUDeviceStatus) -> None:
        if status.uuid:
            post_changes(self.events, device(status.uuid, known.uid), known, status)

    def _post_events(self) -> None:
        """Post Events about the current state; each is posted once."""
        for uuid, looked in self._looked.items():
            post_pod_events(self.events, looked.view, self._state.of(uuid))
            if looked.verdict.reason in _REPORTED_OF_NODES:
                post_node_event(self.events, self._node, uuid, looked.verdict)
            other = self.devices.elsewhere(uuid)
            if other and looked.verdict.reason not in _NOT_REPORTED:
                note = (
                    f"{uuid} is on this node, but GPUDevice {device_name(uuid)} names node {other}, whose agent has "
                    "not reported the GPU as gone: if you moved the GPU, delete that GPUDevice, and this agent "
                    "creates a new one"
                )
                self.events.post(node(self._node), "GPUElsewhere", note)
