"""The limit of open descriptors: each connection needs one, and so does each request to the API server."""

import resource


def raise_limit() -> int:
    """Raise this process's limit to the maximum that it may have; return it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard if hard != resource.RLIM_INFINITY else 1 << 20
