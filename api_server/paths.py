"""URL paths of lists of objects on the API server."""

from orion.crds import device as device_kind
from orion.crds import share as share_kind
from orion.crds.kinds import Kind
from orion.crds.model import API_VERSION

PODS = "/api/v1/pods"
NODES = "/api/v1/nodes"


def resource_path(kind: Kind, namespace: str = "") -> str:
    """Return the path of the list of one of Orion's kinds, in one namespace or in all namespaces."""
    place = f"/namespaces/{namespace}" if namespace else ""
    return f"/apis/{API_VERSION}{place}/{kind.plural}"


SHARES = resource_path(share_kind.KIND)
DEVICES = resource_path(device_kind.KIND)
