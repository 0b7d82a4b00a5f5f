"""What Prometheus learns of admission."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from orion.api_server.metrics import RequestMetrics

if TYPE_CHECKING:
    from orion.api_server.watching import Watched

_BUCKETS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 2.5)
""" Seconds; fine below ten milliseconds, where the API server's own histogram has but one bound. """


class Metrics:
    """The metrics of one webhook process, with a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.api = RequestMetrics(self.registry, "orion_webhook_api")
        self.seconds = Histogram(
            "orion_webhook_review_seconds",
            "Time from a review's last byte read to its answer.",
            ["outcome"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.decisions = Counter(
            "orion_webhook_decisions", "Reviews decided.", ["outcome", "reason"], registry=self.registry
        )
        self.errors = Counter(
            "orion_webhook_errors", "Reviews answered with an HTTP error.", ["status"], registry=self.registry
        )
        self.second_looks = Counter(
            "orion_webhook_second_looks",
            "Reviews that asked the API server before they refused.",
            registry=self.registry,
        )
        self.certificates = Counter(
            "orion_webhook_certificate_loads",
            "Certificates taken into the running server.",
            ["result"],
            registry=self.registry,
        )

    def follow(self, watches: "dict[str, Watched[object, object]]") -> None:
        """Report on watches, by the name of what they watch."""
        self.registry.register(_Watches(watches))

    async def text(self) -> bytes:
        """Return everything as Prometheus reads it."""
        return generate_latest(self.registry)


class _Watches(Collector):
    def __init__(self, watches: "dict[str, Watched[object, object]]") -> None:
        self._watches = watches

    def collect(self) -> Iterator[Metric]:
        objects = GaugeMetricFamily("orion_webhook_objects", "Objects known.", labels=["kind"])
        silent = GaugeMetricFamily(
            "orion_webhook_watch_silent_seconds", "Time since a watch's last word.", labels=["kind"]
        )
        events = CounterMetricFamily("orion_webhook_watch_events", "Events of a watch.", labels=["kind"])
        lists = CounterMetricFamily("orion_webhook_watch_lists", "Times that all was listed.", labels=["kind"])
        errors = CounterMetricFamily("orion_webhook_watch_errors", "Times that a watch broke.", labels=["kind"])
        for kind, watch in self._watches.items():
            objects.add_metric([kind], watch.count)
            silent.add_metric([kind], watch.silent_s)
            events.add_metric([kind], watch.events)
            lists.add_metric([kind], watch.lists)
            errors.add_metric([kind], watch.errors)
        yield from (objects, silent, events, lists, errors)
