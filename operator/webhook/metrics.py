"""Prometheus metrics of the webhook."""

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
""" Bounds in seconds. Below 10 ms there are many buckets; the API server's own histogram has only one there. """


class Metrics:
    """The metrics of one webhook process, in a separate registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.api = RequestMetrics(self.registry, "orion_webhook_api")
        self.seconds = Histogram(
            "orion_webhook_review_seconds",
            "Time from reading a review's last byte to its answer.",
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
        self.refused = Counter(
            "orion_webhook_refused",
            "Connections and reviews beyond a bound, by bound.",
            ["what"],
            registry=self.registry,
        )
        self.second_looks = Counter(
            "orion_webhook_second_looks",
            "Reviews that read the live API before a rejection.",
            registry=self.registry,
        )
        self.certificates = Counter(
            "orion_webhook_certificate_loads",
            "Loads of the certificate, by result (taken, refused).",
            ["result"],
            registry=self.registry,
        )

    def follow(self, watches: "dict[str, Watched[object, object]]") -> None:
        """Export metrics of watches, given by the kind that each of them watches."""
        self.registry.register(_Watches(watches))

    async def text(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self.registry)


class _Watches(Collector):
    def __init__(self, watches: "dict[str, Watched[object, object]]") -> None:
        self._watches = watches

    def collect(self) -> Iterator[Metric]:
        objects = GaugeMetricFamily("orion_webhook_objects", "Objects known.", labels=["kind"])
        silent = GaugeMetricFamily(
            "orion_webhook_watch_silent_seconds", "Time since the last message of a watch.", labels=["kind"]
        )
        events = CounterMetricFamily("orion_webhook_watch_events", "Events of a watch.", labels=["kind"])
        lists = CounterMetricFamily("orion_webhook_watch_lists", "Full lists before a watch.", labels=["kind"])
        errors = CounterMetricFamily("orion_webhook_watch_errors", "Interruptions of a watch.", labels=["kind"])
        for kind, watch in self._watches.items():
            objects.add_metric([kind], watch.count)
            silent.add_metric([kind], watch.silent_s)
            events.add_metric([kind], watch.events)
            lists.add_metric([kind], watch.lists)
            errors.add_metric([kind], watch.errors)
        yield from (objects, silent, events, lists, errors)
