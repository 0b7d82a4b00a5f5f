"""How the reconciler is set: what `orion operator` was told."""

import os
import socket
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from orion.api_server.credentials import SERVICE_ACCOUNT

_LABEL = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
Namespace = Annotated[str, Field(pattern=_LABEL, max_length=63)]


class ReconcilerSettings(BaseModel):
    """All of it; durations in seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kubeconfig: Path | None = None
    """ None: the service account of the pod, else $KUBECONFIG, else ~/.kube/config. """

    namespaces: tuple[Namespace, ...] = ()
    """ Whose pods and shares are looked after; none named: all. """

    lease_namespace: Namespace = Field(default_factory=lambda: own_namespace())
    """ Where the Lease is that lets one of several processes write. """

    lease_name: Annotated[str, Field(pattern=_LABEL)] = "orion-operator"

    lease_seconds: Annotated[float, Field(ge=3, le=300)] = 10
    """ After how long without renewal another process takes over; it is renewed three times in that time. """

    identity: Annotated[str, Field(min_length=1, max_length=128)] = Field(default_factory=lambda: own_identity())
    """ Of this process in the Lease. """

    elect: bool = True
    """ Whether a Lease decides who writes; without, every process does, which converges but doubles the reading. """

    address: Annotated[str, AfterValidator(lambda text: _checked_address(text))] = "0.0.0.0:8080"
    """ Where `/healthz`, `/readyz` and `/metrics` are; empty: nowhere. """

    concurrency: Annotated[int, Field(ge=1, le=256)] = 16
    """ Objects that are written at the same time. """

    request_seconds: Annotated[float, Field(ge=0.1)] = 10
    """ How long one request may take. """

    resync_seconds: Annotated[float, Field(ge=1)] = 600
    """ How often the objects that there are are counted against those that are known. """


def _checked_address(text: str) -> str:
    host, _, port = text.rpartition(":")
    if text and not (host and port.isdecimal() and int(port) < 2**16):
        raise ValueError("it must be HOST:PORT, such as 0.0.0.0:8080, or empty")
    return text


def own_namespace() -> str:
    """Return the namespace that this process runs in, as far as it can tell."""
    path = SERVICE_ACCOUNT / "namespace"
    return path.read_text().strip() if path.exists() else os.environ.get("POD_NAMESPACE", "default")


def own_identity() -> str:
    """Return a name for this process that no other has: the pod's, or host and process."""
    return os.environ.get("POD_NAME") or f"{socket.gethostname()}-{os.getpid()}"[-128:]
