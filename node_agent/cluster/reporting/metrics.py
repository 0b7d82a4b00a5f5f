"""Prometheus metrics of an agent's work in a cluster: slot holders, unmanaged processes, status writes and Events.

The scrape's thread reads them, from values that are replaced and never changed.
"""

from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from orion.node_agent.cluster.reporting.coexistence import Coexistence
from orion.node_agent.cluster.reporting.events import Events
from orion.node_agent.cluster.reporting.gpu_devices import GpuDevices
from orion.node_agent.cluster.reporting.unmanaged import UnmanagedProcesses
from orion.node_agent.cluster.state import ClusterState


class ClusterMetrics(Collector):
    """The metrics of one agent.

    Args:
        gpus: the UUIDs of the served GPUs; more may come later.
        state: knows who holds the GPUs' slots.
        unmanaged: knows the processes that run without the hook.
        coexistence: knows which other plugins advertise the GPUs.
        devices: counts status writes.
        events: counts posted Events.
    """

    def __init__(
        self,
        gpus: Iterable[str],
        state: ClusterState,
        unmanaged: UnmanagedProcesses,
        coexistence: Coexistence,
        devices: GpuDevices,
        events: Events,
    ) -> None:
        self._gpus_served, self._state = gpus, state
        self._unmanaged, self._coexistence = unmanaged, coexistence
        self._devices, self._events = devices, events

    def describe(self) -> list[Metric]:
        """Return nothing. The registry uses this only to detect a second instance, and the agent registers one."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics with their current values."""
        yield from self._slots()
        yield from self._gpus()
        yield from self._writes()

    def _slots(self) -> Iterator[Metric]:
        total = GaugeMetricFamily("orion_gpu_slots", "Slots.", labels=["gpu", "role"])
        held = GaugeMetricFamily("orion_gpu_slots_held", "Slots that containers hold.", labels=["gpu", "role"])
        names = ["gpu", "slot", "namespace", "pod", "container", "share"]
        holder = GaugeMetricFamily(
            "orion_slot_holder", "1; the labels name the container that holds the slot.", labels=names
        )
        for uuid in list(self._gpus_served):
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
        unmanaged = GaugeMetricFamily("orion_gpu_unmanaged_processes", "Processes without the hook.", labels=["gpu"])
        others = GaugeMetricFamily(
            "orion_gpu_advertised_by_another",
            "1: another plugin advertises the GPU, or a DRA driver gave it to a pod.",
            labels=["gpu", "resource"],
        )
        for uuid in list(self._gpus_served):
            unmanaged.add_metric([uuid], len(self._unmanaged.of(uuid)))
            for resource in self._coexistence.others(uuid):
                others.add_metric([uuid, resource], 1)
        yield from (unmanaged, others)

    def _writes(self) -> Iterator[Metric]:
        devices, events = self._devices, self._events
        for name, sentence, value in (
            ("orion_cluster_device_writes", "Statuses of GPUDevices written.", devices.writes),
            ("orion_cluster_device_failures", "Failed requests to the API server about a GPUDevice.", devices.failures),
            ("orion_cluster_events", "Events posted.", events.posted),
            ("orion_cluster_event_failures", "Attempts to post an Event that failed.", events.failed),
        ):
            yield CounterMetricFamily(name, sentence, value=value)
