"""What Prometheus learns of an agent's work in a cluster: who holds which slot, who is on a GPU unasked, what was said.

Read at the scrape, in its thread, from values that are replaced and never changed.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from orion.node_agent.agent import Agent
from orion.node_agent.cluster.state import ClusterState

if TYPE_CHECKING:
    from orion.node_agent.cluster.reporting import Reporting


class ClusterMetrics(Collector):
    """The numbers of one agent."""

    def __init__(self, reporting: "Reporting", state: ClusterState, agent: Agent) -> None:
        self._reporting, self._state, self._agent = reporting, state, agent

    def describe(self) -> list[Metric]:
        """Return nothing: nobody registers a second one."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield all of it as it is now."""
        yield from self._slots()
        yield from self._gpus()
        yield from self._writes()

    def _slots(self) -> Iterator[Metric]:
        total = GaugeMetricFamily("orion_gpu_slots", "Slots.", labels=["gpu", "role"])
        held = GaugeMetricFamily("orion_gpu_slots_held", "Slots that containers hold.", labels=["gpu", "role"])
        names = ["gpu", "slot", "namespace", "pod", "container", "share"]
        holder = GaugeMetricFamily("orion_slot_holder", "1; who holds the slot.", labels=names)
        for uuid in list(self._agent.gpus):
            state = self._state.of(uuid)
            for role, count in state.slots.items():
                total.add_metric([uuid, role], count)
                held.add_metric([uuid, role], sum(slot.priority is role for slot in state.held))
            for slot in state.held:
                if slot.holder:
                    who = [slot.holder.namespace, slot.holder.pod, slot.holder.container]
                    holder.add_metric([uuid, slot.name, *who, slot.share or ""], 1)
        yield from (total, held, holder)

    def _gpus(self) -> Iterator[Metric]:
        strangers = GaugeMetricFamily("orion_gpu_strangers", "Processes without the hook.", labels=["gpu"])
        others = GaugeMetricFamily(
            "orion_gpu_offered_by_another", "1; another plugin offers the GPU too.", labels=["gpu", "resource"]
        )
        for uuid in list(self._agent.gpus):
            strangers.add_metric([uuid], len(self._reporting.strangers.of(uuid)))
            for resource in self._reporting.coexistence.others(uuid):
                others.add_metric([uuid, resource], 1)
        yield from (strangers, others)

    def _writes(self) -> Iterator[Metric]:
        devices, events = self._reporting.devices, self._reporting.events
        for name, sentence, value in (
            ("orion_cluster_device_writes", "Statuses of GPUDevices written.", devices.writes),
            ("orion_cluster_device_failures", "Looks at a GPUDevice that the API server failed.", devices.failures),
            ("orion_cluster_events", "Events posted.", events.posted),
            ("orion_cluster_event_failures", "Events that could not be posted, or not at once.", events.failed),
        ):
            yield CounterMetricFamily(name, sentence, value=value)
