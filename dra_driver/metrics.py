"""The driver's Prometheus metrics; docs/dra.md lists them."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.1, 0.5, 2.0, 5.0, 10.0, 45.0)
FIELDS_DROPPED, NO_CDI = "SliceFieldsDropped", "RuntimeWithoutCDI"
""" Why the driver offers no GPU, as the metric and the node's Event name it. """


class Metrics:
    """The metrics of one driver process, in a separate registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.registered = Gauge(
            "orion_dra_driver_registered", "1 while the kubelet has accepted the driver.", registry=self.registry
        )
        self.requests = Histogram(
            "orion_dra_driver_request_seconds",
            "Duration of the kubelet's requests, by method and result.",
            ["method", "result"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.agent_connected = Gauge(
            "orion_dra_driver_agent_connected", "1 while the agent is connected.", registry=self.registry
        )
        self.waits = Gauge(
            "orion_dra_driver_waits",
            "1 while the driver offers no GPU because the device plugin gives the node's slots.",
            registry=self.registry,
        )
        self.withheld = Gauge(
            "orion_dra_driver_withheld",
            "1 while the driver offers no GPU: the API server drops fields, or the container runtime knows no CDI.",
            ["reason"],
            registry=self.registry,
        )
        self.withhold("")
        self.claims = Gauge("orion_dra_driver_claims", "Prepared claims.", registry=self.registry)
        self.configurations = Counter(
            "orion_dra_driver_configuration_changes",
            "Changes of the configuration file, accepted or rejected.",
            ["result"],
            registry=self.registry,
        )
        self.slice_writes = Counter(
            "orion_dra_driver_slice_writes", "Writes of this node's ResourceSlices.", ["result"], registry=self.registry
        )

    def withhold(self, reason: str) -> None:
        """Set why the driver offers no GPU; empty: it offers them."""
        for each in (FIELDS_DROPPED, NO_CDI):
            self.withheld.labels(each).set(each == reason)

    async def text(self) -> bytes:
        """Return all metrics in the Prometheus text format."""
        return generate_latest(self.registry)
