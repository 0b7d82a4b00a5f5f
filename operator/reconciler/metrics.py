"""Prometheus metrics of the reconciler."""

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.process_collector import ProcessCollector

from orion.api_server.metrics import RequestMetrics


class Metrics:
    """All metrics, in a separate registry, so that one test can run two reconcilers."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.api = RequestMetrics(self.registry, "orion_operator")
        self.writes = Counter(
            "orion_operator_writes", "Writes, by type and outcome.", ["what", "outcome"], registry=self.registry
        )
        self.reconciled = Counter("orion_operator_reconciled", "Reconciled objects.", ["kind"], registry=self.registry)
        self.failures = Counter(
            "orion_operator_failures", "Objects queued again after a failure.", ["kind"], registry=self.registry
        )
        self.waiting = Gauge(
            "orion_operator_waiting", "Objects in the queue or being reconciled.", registry=self.registry
        )
        self.leader = Gauge("orion_operator_leader", "1 while this process may write.", registry=self.registry)
        self.ready = Gauge(
            "orion_operator_ready", "1 once the operator has read all objects after its start.", registry=self.registry
        )
        self.objects = Gauge("orion_operator_objects", "Objects in memory.", ["kind"], registry=self.registry)
        self.ungoverning = Gauge(
            "orion_operator_ungoverning_shares",
            "GPUShares that do not govern, because their namespace has too many older ones.",
            ["namespace"],
            registry=self.registry,
        )
