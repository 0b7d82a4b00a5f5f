"""Prometheus metrics of requests to the API server."""

from prometheus_client import CollectorRegistry, Counter


class RequestMetrics:
    """Counts the requests of one process.

    Args:
        registry: where the metrics are registered; None: a new registry.
        prefix: the prefix of the metrics' names.
    """

    def __init__(self, registry: CollectorRegistry | None = None, prefix: str = "orion") -> None:
        kept = registry or CollectorRegistry()
        self.requests = Counter(
            f"{prefix}_requests",
            "Requests to the API server that are not watches.",
            ["method", "status"],
            registry=kept,
        )
        self.retries = Counter(f"{prefix}_retries", "Requests to the API server that were retried.", registry=kept)
