"""What gRPC prints: it logs to standard error by itself, as the variable says that it reads at its import."""

import os

VERBOSITY = "GRPC_VERBOSITY"


def log_errors_only() -> None:
    """Have gRPC report errors and no normal events, such as the end of a connection. Call this before its import."""
    os.environ.setdefault(VERBOSITY, "ERROR")
