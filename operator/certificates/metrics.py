"""Prometheus metrics of the webhook's certificates. The end times allow an alert before a certificate expires."""

from prometheus_client import CollectorRegistry, Counter, Gauge

from orion.operator.certificates.state import State


class Metrics:
    """The metrics of one process.

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
        self.retired = Gauge(
            "orion_certificates_retired_authorities", "Trusted retired authorities.", registry=self.registry
        )
        self.steps = Counter("orion_certificates_steps", "Writes of the Secret.", registry=self.registry)
        self.spreads = Counter("orion_certificates_bundle_writes", "Writes of caBundles.", registry=self.registry)
        self.failures = Counter("orion_certificates_failures", "Passes that failed.", registry=self.registry)

    def report(self, state: State) -> None:
        """Set the gauges to a state."""
        for what, certificate in (("leaf", state.leaf), ("authority", state.authority)):
            self.ends.labels(what).set(certificate.ends.timestamp() if certificate else 0)
        self.retired.set(len(state.retired))

    def forget(self) -> None:
        """Report no certificates: another process renews them now, so those that this one knows may be old."""
        self.ends.clear()
        self.retired.set(0)
