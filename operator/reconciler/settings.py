"""Settings of the reconciler, from the options of `orion operator`."""

import os
import socket
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from orion.api_server.credentials import SERVICE_ACCOUNT
from orion.crds.allocation import Allocation
from orion.crds.governing import SHARES_MAX

_LABEL = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
Namespace = Annotated[str, Field(pattern=_LABEL, max_length=63)]


class ReconcilerSettings(BaseModel):
    """All settings; durations in seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kubeconfig: Path | None = None
    """ None: the service account of the pod, else $KUBECONFIG, else ~/.kube/config. """

    namespaces: tuple[Namespace, ...] = ()
    """ The namespaces whose pods and shares are watched; empty: all. """

    lease_namespace: Namespace = Field(default_factory=lambda: own_namespace())
    """ The namespace of the Lease. Of several processes, only the holder of the Lease writes. """

    lease_name: Annotated[str, Field(pattern=_LABEL)] = "orion-operator"

    lease_seconds: Annotated[float, Field(ge=3, le=300)] = 10
    """ Duration of the Lease: another process takes over if the holder has not renewed it for this long. The holder
    renews it after each third of this time. """

    identity: Annotated[str, Field(min_length=1, max_length=128)] = Field(default_factory=lambda: own_identity())
    """ The name of this process in the Lease. """

    elect: bool = True
    """ Whether to use the Lease. Without it, every process writes: the result is the same, with more load. """

    address: Annotated[str, AfterValidator(lambda text: _checked_address(text))] = "0.0.0.0:8080"
    """ HOST:PORT of `/healthz`, `/readyz` and `/metrics`; empty: they are not served. """

    concurrency: Annotated[int, Field(ge=1, le=256)] = 16
    """ How many objects are reconciled at the same time. """

    request_seconds: Annotated[float, Field(ge=0.1)] = 10
    """ Timeout of one request. """

    allocation: Allocation = Allocation.DEVICE_PLUGIN
    """ How the cluster gives slots to pods. With claims, the operator makes the templates of the pods' claims. """

    shares_per_namespace: Annotated[int, Field(ge=1)] = SHARES_MAX
    """ How many shares of a namespace govern pods: the oldest ones. The webhook needs the same value. """

    resync_seconds: Annotated[float, Field(ge=1)] = 600
    """ Interval between two resyncs: comparisons of the objects in memory with the objects of the API server. """


def _checked_address(text: str) -> str:
    host, _, port = text.rpartition(":")
    if text and not (host and port.isdecimal() and int(port) < 2**16):
        raise ValueError("it must be HOST:PORT, such as 0.0.0.0:8080, or empty")
    return text


def own_namespace() -> str:
    """Return the namespace of this process: of its service account, else $POD_NAMESPACE, else `default`."""
    path = SERVICE_ACCOUNT / "namespace"
    return path.read_text().strip() if path.exists() else os.environ.get("POD_NAMESPACE", "default")


def own_identity() -> str:
    """Return a unique name for this process: the pod's name, or host name and process id."""
    return os.environ.get("POD_NAME") or f"{socket.gethostname()}-{os.getpid()}"[-128:]
