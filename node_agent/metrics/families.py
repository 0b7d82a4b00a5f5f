"""Prometheus metrics, made from the pages at each scrape; `docs/metrics.md` lists them.

A process that joined a slot twice has one series, the sum over its clients, because Prometheus rejects a scrape with
two equal series. Clients' numbers are unsigned 64-bit words; a float is precise enough for them. Clients' texts are
printable.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from orion.hook import layout
from orion.node_agent.gpus.keeper import HealthKeeper
from orion.node_agent.metrics.client_counters import ClientCounters, Counts, Labels
from orion.node_agent.snapshots import AgentView, ClientView, GpuView, SlotView

_CLIENT_LABELS = ("gpu", "slot", "role", "process_id", "command")
_SLOT_LABELS = ("gpu", "slot")
_NS = 1e-9

# Name, help, whether it is a counter, the record's field, and the factor to base units.
_PLAIN: tuple[tuple[str, str, bool, str, float], ...] = (
    ("orion_client_launches", "Calls that put work on the GPU.", True, "launches", 1),
    ("orion_client_gated_launches", "Launches that waited for hp.", True, "gated_launches", 1),
    ("orion_client_gated_seconds", "Time spent waiting for hp.", True, "gated_ns", _NS),
    ("orion_client_window_waits", "Launches that waited for the window.", True, "window_waits", 1),
    ("orion_client_window_wait_seconds", "Time spent waiting for the window.", True, "window_wait_ns", _NS),
    ("orion_client_busy_periods", "Busy periods of an hp client.", True, "busy_periods", 1),
    ("orion_client_memory_refusals", "Allocations refused for the memory limit.", True, "memory_refusals", 1),
    ("orion_client_given_up", "Waits ended because hp made no progress.", True, "given_up", 1),
    ("orion_client_unknown_functions", "Look-ups of driver functions unknown to the hook.", True,
     "unknown_functions", 1),
    ("orion_client_in_flight_seconds", "Expected be work in flight.", False, "in_flight_ns", _NS),
    ("orion_client_window_share_seconds", "Share of the window of this client.", False, "window_share_ns", _NS),
    ("orion_client_linger_seconds", "Linger that an hp client has learnt.", False, "linger_ns", _NS),
    ("orion_client_kernels_known", "Kernels with a learnt duration.", False, "kernels_known", 1),
    ("orion_client_gpu_seconds", "Measured time of be on the GPU, of completed work.", True, "gpu_ns", _NS),
    ("orion_client_overlapped_launches", "be launches allowed while hp was busy.", True, "overlapped_launches", 1),
    ("orion_client_overlapped_seconds", "Expected time of the overlapped be launches.", True, "overlapped_ns", _NS),
    ("orion_client_partitioned_launches", "be launches on fewer SMs.", True, "partitioned_launches", 1),
    ("orion_client_control_periods", "hp busy periods without overlap, for comparison.", True, "control_periods", 1),
    ("orion_client_memory_bytes", "Device memory of a client, the driver's own included.", False, "memory_bytes", 1),
)  # fmt: skip

_USAGE = (
    ("orion_slot_due_seconds", "GPU time that a slot was due.", "due"),
    ("orion_slot_charged_seconds", "GPU time that a slot was charged.", "charged"),
    ("orion_slot_measured_seconds", "GPU time that the clients of a slot report.", "measured"),
    ("orion_slot_waited_seconds", "Time that launches of a slot waited for a turn or for hp.", "waited"),
)
""" Name and help of a counter of a slot, and the field of its totals. """

_POLICY_RATIOS = (
    ("orion_gpu_max_slowdown_ratio", "How much longer hp's work may take than alone.", "max_slowdown"),
    ("orion_gpu_sharing_cost_ratio", "Slowdown that sharing a context by itself causes hp, if known.", "sharing_cost"),
    ("orion_gpu_request_ratio", "Part of the GPU's time that hp is sure of.", "request"),
)

_BUCKET_ENDS = [2**exponent * 1e-6 for exponent in range(layout.WAIT_BUCKETS - 1)]


def render(view: AgentView, version: str, counters: ClientCounters) -> Iterator[Metric]:
    """Yield all metrics of one snapshot; `counters` are those of the snapshots before it."""
    clients = [
        (_labels(gpu, slot, client), client) for gpu in view.gpus for slot in gpu.slots for client in slot.clients
    ]
    yield from _clients(clients, counters.take(clients, [field for _, _, grows, field, _ in _PLAIN if grows]))
    yield from _gpus(view.gpus)
    yield from _slots(view.gpus)
    yield _conditions(view.gpus)
    yield from _agent(view, version)


def _labels(gpu: GpuView, slot: SlotView, client: ClientView) -> Labels:
    return gpu.gpu.uuid, slot.name, slot.role.name.lower(), str(client.process_id), client.command


def _sum(values: Iterable[tuple[Labels, float]]) -> dict[Labels, float]:
    sums: dict[Labels, float] = {}
    for labels, value in values:
        sums[labels] = sums.get(labels, 0.0) + value
    return sums


def _family(name: str, sentence: str, grows: bool, labels: Iterable[str], values: dict[Labels, float]) -> Metric:
    kind = CounterMetricFamily if grows else GaugeMetricFamily
    family = kind(name, sentence, labels=list(labels))
    for key, value in values.items():
        family.add_metric(list(key), value)
    return family


def _clients(clients: list[tuple[Labels, ClientView]], counted: Mapping[Labels, Counts]) -> Iterator[Metric]:
    for name, sentence, grows, field, unit in _PLAIN:
        if grows:
            values = {labels: counts[field] * unit for labels, counts in counted.items()}
        else:
            values = _sum((labels, getattr(client.record, field) * unit) for labels, client in clients)
        yield _family(name, sentence, grows, _CLIENT_LABELS, values)
    busy = {labels: counts["busy_ns"] * _NS for labels, counts in counted.items()}
    yield _family("orion_client_busy_seconds", "Time an hp client was busy.", True, _CLIENT_LABELS, busy)
    yield _most(
        "orion_client_slowdown_ratio",
        "Time of hp's work with overlap, divided by the time without.",
        _CLIENT_LABELS,
        ((labels, client.record.slowdown_milli * 1e-3) for labels, client in clients if client.record.slowdown_milli),
    )
    yield _most(
        "orion_client_overlap_seconds",
        "Maximum age of an hp busy period for overlap.",
        _CLIENT_LABELS,
        ((labels, client.record.overlap_ns * _NS) for labels, client in clients),
    )
    yield _most(
        "orion_be_long_kernel_seconds",
        "The longest kernel of a be client, if it counts as long.",
        (*_CLIENT_LABELS, "kernel"),
        (
            ((*labels, client.record.long_kernel_name), client.record.long_kernel_ns * _NS)
            for labels, client in clients
            if client.record.long_kernel_ns
        ),
    )
    yield _waits(counted)


def _most(name: str, sentence: str, labels: Iterable[str], values: Iterable[tuple[Labels, float]]) -> Metric:
    """Return a gauge whose value for a process with several clients is the largest one, not the sum."""
    largest: dict[Labels, float] = {}
    for key, value in values:
        largest[key] = max(value, largest.get(key, 0.0))
    return _family(name, sentence, False, labels, largest)


def _slots(gpus: Iterable[GpuView]) -> Iterator[Metric]:
    request = GaugeMetricFamily(
        "orion_slot_request_ratio", "Part of the time that a be slot gets at least; 0: none.", labels=_SLOT_LABELS
    )
    limit = GaugeMetricFamily(
        "orion_slot_limit_ratio", "Part of the time that a slot gets at most; 0: no limit.", labels=_SLOT_LABELS
    )
    turns = GaugeMetricFamily(
        "orion_slot_takes_turns", "1 while a be slot takes turns with others.", labels=_SLOT_LABELS
    )
    slots = [slot for view in gpus for slot in view.slots]
    for slot in slots:
        labels = [slot.gpu, slot.name]
        limit.add_metric(labels, slot.grant.limit_milli / 1_000)
        if slot.role is layout.Role.BE:
            request.add_metric(labels, slot.grant.request_milli / 1_000)
            turns.add_metric(labels, slot.plan is not None)
    yield from (request, limit, turns, *_parking(gpus))
    yield from _usage([slot for slot in slots if slot.clients])


def _parking(gpus: Iterable[GpuView]) -> Iterator[Metric]:
    """Yield what has left the memory of the GPUs on which a slot may leave, or has left."""
    slots = GaugeMetricFamily("orion_gpu_parked_slots", "Slots that have left the GPU's memory.", labels=["gpu"])
    held = GaugeMetricFamily("orion_gpu_parked_bytes", "What they hold in the host's memory.", labels=["gpu"])
    reserve = GaugeMetricFamily("orion_gpu_reserve_bytes", "Memory kept free for hp.", labels=["gpu"])
    counts = CounterMetricFamily("orion_gpu_parkings", "Tenants that left, by result.", labels=["gpu", "result"])
    times = CounterMetricFamily("orion_gpu_parking_seconds", "How long that took.", labels=["gpu", "result"])
    away = CounterMetricFamily("orion_slot_parked_seconds", "Time that a slot was away, in all.", labels=_SLOT_LABELS)
    for view in gpus:
        gpu = [view.gpu.uuid]
        parked = [slot for slot in view.slots if slot.parking.state == "parked"]
        slots.add_metric(gpu, len(parked))
        held.add_metric(gpu, sum(slot.parking.held_bytes for slot in parked))
        reserve.add_metric(gpu, view.parking.reserve_bytes)
        for result in ("left", "returned", "refused", "host_memory_short", "lost"):
            counts.add_metric([*gpu, result], view.parking.counts.get(result, 0))
        for result in ("left", "returned"):
            times.add_metric([*gpu, result], view.parking.seconds.get(result, 0.0))
        for slot in view.slots:
            if slot.clients and slot.role is layout.Role.BE:
                away.add_metric([slot.gpu, slot.name], slot.parking.total_seconds)
    yield from (slots, held, reserve, counts, times, away)


def _usage(slots: Collection[SlotView]) -> Iterator[Metric]:
    for name, sentence, field in _USAGE:
        values: dict[Labels, float] = {(slot.gpu, slot.name): getattr(slot.usage.totals, field) * _NS for slot in slots}
        yield _family(name, sentence, True, _SLOT_LABELS, values)
    debts: dict[Labels, float] = {(slot.gpu, slot.name): slot.debt_ns * _NS for slot in slots}
    yield _family("orion_slot_debt_seconds", "What a slot used beyond what it was due.", False, _SLOT_LABELS, debts)


def _conditions(gpus: Iterable[GpuView]) -> Metric:
    family = GaugeMetricFamily(
        "orion_condition", "Number of clients (or GPUs) that have this condition.", labels=["gpu", "reason"]
    )
    counts: Counter[tuple[str, str]] = Counter()
    for view in gpus:
        clients = [client for slot in view.slots for client in slot.clients]
        found = [*view.conditions, *(each for client in clients for each in client.conditions)]
        counts.update((view.gpu.uuid, each.reason) for each in found)
    for key, count in counts.items():
        family.add_metric(list(key), count)
    return family


def _waits(counted: Mapping[Labels, Counts]) -> Metric:
    family = HistogramMetricFamily("orion_client_gate_wait_seconds", "Waits at the gate.", labels=_CLIENT_LABELS)
    for labels, counts in counted.items():
        buckets: list[tuple[str, float]] = []
        total = 0
        for bucket, end in enumerate([*map(str, _BUCKET_ENDS), "+Inf"]):
            total += counts[bucket]
            buckets.append((end, total))
        family.add_metric(list(labels), buckets, counts["gated_ns"] * _NS)
    return family


def _gpus(gpus: Iterable[GpuView]) -> Iterator[Metric]:
    busy = GaugeMetricFamily("orion_gpu_hp_busy_ratio", "Share of the last second that hp was busy.", labels=["gpu"])
    clients = GaugeMetricFamily("orion_gpu_clients", "Living clients.", labels=["gpu", "role"])
    window = GaugeMetricFamily("orion_gpu_window_seconds", "Expected be work allowed in flight.", labels=["gpu"])
    total = GaugeMetricFamily("orion_gpu_memory_bytes", "The GPU's memory.", labels=["gpu"])
    used = GaugeMetricFamily("orion_gpu_memory_used_bytes", "Memory in use, as the device reports it.", labels=["gpu"])
    ratios = [GaugeMetricFamily(name, sentence, labels=["gpu"]) for name, sentence, _ in _POLICY_RATIOS]
    info = InfoMetricFamily("orion_gpu", "Model and policy of the GPU.", labels=["gpu"])
    for view in gpus:
        gpu = [view.gpu.uuid]
        busy.add_metric(gpu, view.hp_busy_ratio)
        window.add_metric(gpu, view.policy.window_ns * _NS)
        total.add_metric(gpu, view.gpu.memory_bytes)
        used.add_metric(gpu, view.memory_used_bytes)
        simulated = str(view.gpu.simulated).lower()
        policy = view.policy.name
        info.add_metric(gpu, {"model": view.gpu.model, "policy": policy, "simulated": simulated})
        values = view.policy.values()
        for family, (_, _, field) in zip(ratios, _POLICY_RATIOS, strict=True):
            family.add_metric(gpu, values[field])
        for role in (layout.Role.HP, layout.Role.BE):
            count = sum(len(slot.clients) for slot in view.slots if slot.role is role)
            clients.add_metric([*gpu, role.name.lower()], count)
    yield from (busy, clients, window, total, used, info, *ratios)


def _agent(view: AgentView, version: str) -> Iterator[Metric]:
    roles: dict[Labels, float] = {(role,): float(view.joins.get(role, 0)) for role in ("hp", "be")}
    yield _family("orion_agent_joins", "Clients that joined.", True, ["role"], roles)
    reasons: dict[Labels, float] = {(reason,): float(count) for reason, count in view.refusals.items()}
    yield _family("orion_agent_refusals", "Joins refused.", True, ["reason"], reasons)
    yield _family(
        "orion_agent_adopted", "Clients that returned after the agent was restarted.", True, [], {(): view.adopted}
    )
    yield InfoMetricFamily("orion_agent_build", "The agent.", {"version": version})


class HealthMetrics(Collector):
    """Whether each GPU is healthy."""

    def __init__(self, keeper: HealthKeeper) -> None:
        self._keeper = keeper

    def collect(self) -> Iterator[Metric]:
        """Yield the current values."""
        healthy = GaugeMetricFamily("orion_gpu_healthy", "1 while the GPU itself is healthy.", labels=["gpu"])
        for uuid in self._keeper.uuids:
            healthy.add_metric([uuid], self._keeper.verdict(uuid).healthy)
        yield healthy
