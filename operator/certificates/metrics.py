"""Prometheus metrics of the webhook's certificates. The end times allow an alert before a certificate expires."""

from datetime import datetime

from prometheus_client import CollectorRegistry, Counter, Gauge

from orion.operator.certificates.deciding import Phase, phase
from orion.operator.certificates.state import State


class Metrics:
    """The metrics of one rotation.

    Args:
        registry: where the metrics are registered; None: a new registry.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self.ends = Gauge(
            "orion_certificates_end_timestamp_seconds",
            "Time at which a certificate expires, in seconds since 1970.",
            ["what"],
            registry=self.registry,
        )
        self.phase = Gauge("orion_certificates_phase", "1 for the current phase.", ["phase"], registry=self.registry)
        self.steps = Counter("orion_certificates_steps", "Writes of the Secret.", registry=self.registry)
        self.spreads = Counter("orion_certificates_bundle_writes", "Writes of caBundles.", registry=self.registry)
        self.failures = Counter("orion_certificates_failures", "Passes that failed.", registry=self.registry)

    def report(self, state: State, now: datetime) -> None:
        """Set the gauges to a state."""
        for what, certificate in (("leaf", state.leaf), ("authority", state.authority)):
            self.ends.labels(what).set(certificate.ends.timestamp() if certificate else 0)
        present = phase(state, now)
        for each in Phase:
            self.phase.labels(each).set(each is present)
