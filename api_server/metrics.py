"""What Prometheus learns of requests to the API server."""

from prometheus_client import CollectorRegistry, Counter


class RequestMetrics:
    """Counts the requests of one process.

    Args:
        registry: where they are kept; None: one of their own.
        prefix: of their names.
    """

    def __init__(self, registry: CollectorRegistry | None = None, prefix: str = "orion") -> None:
        kept = registry or CollectorRegistry()
        reported = "Requests to the API server that are not watches."
        self.requests = Counter(f"{prefix}_requests", reported, ["method", "status"], registry=kept)
        self.retries = Counter(f"{prefix}_retries", "Requests made again.", registry=kept)
