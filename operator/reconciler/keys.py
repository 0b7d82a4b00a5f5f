"""The keys of objects that may need a write: what the queue holds."""

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from orion.operator.reconciler.records import Named


class Kind(StrEnum):
    """The kinds of objects in the queue."""

    __hash__ = str.__hash__  # Enum's own takes most of the time of a look-up of a `Key`

    POD = "pod"
    SHARE = "share"
    NODE = "node"
    DEVICE = "device"
    """ The operator changes or deletes a GPUDevice only if its node is gone: no agent writes its status then. """
    NAMESPACE = "namespace"
    """ Queued when a share of the namespace has changed, because pods of the namespace may then need other grants. """
    TEMPLATE = "template"
    """ A ResourceClaimTemplate that a pod waits for. """


class Key(NamedTuple):
    """An object that may need a write."""

    kind: Kind
    at: Named


def node_key(name: str) -> Key:
    """Return the key of a node."""
    return Key(Kind.NODE, Named("", name))


def device_key(name: str) -> Key:
    """Return the key of a GPU."""
    return Key(Kind.DEVICE, Named("", name))


def share_keys(namespace: str, names: Iterable[str]) -> set[Key]:
    """Return the keys of shares of one namespace."""
    return {Key(Kind.SHARE, Named(namespace, name)) for name in names}
