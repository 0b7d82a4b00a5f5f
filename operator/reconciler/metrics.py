"""What the reconciler says of itself to Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.process_collector import ProcessCollector

from orion.api_server.metrics import RequestMetrics


class Metrics:
    """All metrics, in a registry of their own, so that two reconcilers in one test do not meet."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.api = RequestMetrics(self.registry, "orion_operator")
        self.writes = Counter(
            "orion_operator_writes", "Writes by what they are.", ["what", "outcome"], registry=self.registry
        )
        self.reconciled = Counter("orion_operator_reconciled", "Objects looked at.", ["kind"], registry=self.registry)
        self.failures = Counter(
            "orion_operator_failures", "Objects put back for a failed write.", ["kind"], registry=self.registry
        )
        self.waiting = Gauge(
            "orion_operator_waiting", "Objects that wait to be looked at, or are.", registry=self.registry
        )
        self.leader = Gauge("orion_operator_leader", "1 while this process may write.", registry=self.registry)
        self.ready = Gauge(
            "orion_operator_ready", "1 once all objects of the first count are known.", registry=self.registry
        )
        self.objects = Gauge("orion_operator_objects", "Objects that are known.", ["kind"], registry=self.registry)
