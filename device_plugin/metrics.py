"""The plugin's Prometheus metrics; docs/device-plugin.md lists them."""

import time
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from orion.device_plugin.advertised import HEALTHY, UNHEALTHY, Advertised
from orion.injection.slots import Resource

_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.1, 0.5, 2.0, 5.0, 10.0, 30.0)


class Metrics:
    """The metrics of one plugin process, in a separate registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.registrations = Counter(
            "orion_device_plugin_registrations",
            "Attempts to register with the kubelet.",
            ["resource", "result"],
            registry=self.registry,
        )
        self.registered = Gauge(
            "orion_device_plugin_registered",
            "1 while the kubelet watches the resource.",
            ["resource"],
            registry=self.registry,
        )
        self.requests = Histogram(
            "orion_device_plugin_request_seconds",
            "Duration of requests of the kubelet.",
            ["resource", "method", "result"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.agent_connected = Gauge(
            "orion_device_plugin_agent_connected", "1 while the agent is connected.", registry=self.registry
        )
        self.waits = Gauge(
            "orion_device_plugin_waits",
            "1 while the plugin advertises no slots because the DRA driver gives those of the node.",
            registry=self.registry,
        )
        self.configurations = Counter(
            "orion_device_plugin_configuration_changes",
            "Changes of the configuration file, accepted or rejected.",
            ["result"],
            registry=self.registry,
        )
        for resource in Resource:
            self.registered.labels(resource).set(0)

    def follow(self, advertised: Advertised) -> None:
        """Export the advertised devices."""
        self.registry.register(_AdvertisedDevices(advertised))

    async def text(self) -> bytes:
        """Return all metrics in the Prometheus text format."""
        return generate_latest(self.registry)


class _AdvertisedDevices(Collector):
    def __init__(self, advertised: Advertised) -> None:
        self._advertised = advertised

    def collect(self) -> Iterator[Metric]:
        devices = GaugeMetricFamily("orion_device_plugin_devices", "Advertised slots.", labels=["resource", "health"])
        for resource in Resource:
            health = [device.health for device in self._advertised.devices(resource)]
            for each in (HEALTHY, UNHEALTHY):
                devices.add_metric([resource, each.lower()], health.count(each))
        yield devices
        if self._advertised.received_at:
            age = time.monotonic() - self._advertised.received_at
            yield GaugeMetricFamily(
                "orion_device_plugin_snapshot_age_seconds",
                "Time since the agent's last snapshot.",
                value=age,
            )
