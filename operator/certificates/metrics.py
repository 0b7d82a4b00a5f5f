"""What Prometheus learns of certificates; above all when they end, so that an alert comes before the end does."""

from datetime import datetime

from prometheus_client import CollectorRegistry, Counter, Gauge

from orion.operator.certificates.deciding import Phase, phase
from orion.operator.certificates.state import State


class Metrics:
    """The metrics of one rotation.

    Args:
        registry: where they are kept; None: one of their own.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self.ends = Gauge(
            "orion_certificates_end_timestamp_seconds",
            "When a certificate ends, in seconds since 1970.",
            ["what"],
            registry=self.registry,
        )
        self.phase = Gauge("orion_certificates_phase", "1 for the present phase.", ["phase"], registry=self.registry)
        self.steps = Counter("orion_certificates_steps", "Writes of the Secret.", registry=self.registry)
        self.spreads = Counter("orion_certificates_bundle_writes", "Writes of caBundles.", registry=self.registry)
        self.failures = Counter("orion_certificates_failures", "Passes that failed.", registry=self.registry)

    def report(self, state: State, now: datetime) -> None:
        """Report a state."""
        for what, certificate in (("leaf", state.leaf), ("authority", state.authority)):
            self.ends.labels(what).set(certificate.ends.timestamp() if certificate else 0)
        present = phase(state, now)
        for each in Phase:
            self.phase.labels(each).set(each is present)
