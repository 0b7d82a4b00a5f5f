"""The state of the reconciler: the records of all watched objects, and which objects a change concerns.

Records arrive one by one, in any order. Each change returns the keys of the objects whose decision may change.

The state also caches which share governs which pod, because every decision needs that. A change of a share makes its
namespace *behind*: the change is applied when the cache is next read, or before, in short steps (`advance`). A step
governs only pods again that the change may concern (`claims`).
"""

import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import NamedTuple, TypeVar

from orion.operator.reconciler.claims import discard_from
from orion.operator.reconciler.governance import Governance, How, ShareRecords, govern, last_grant
from orion.operator.reconciler.grants import has_grant
from orion.operator.reconciler.records import DeviceRecord, Named, NodeRecord, PodRecord, ShareRecord
from orion.operator.reconciler.share_conditions import Governed
from orion.operator.reconciler.usage import Usage, named_pods, usage

_Value = TypeVar("_Value")


class Kind(StrEnum):
    """The kinds of objects in the queue."""

    POD = "pod"
    SHARE = "share"
    NODE = "node"
    DEVICE = "device"
    """ The operator changes or deletes a GPUDevice only if its node is gone: no agent writes its status then. """
    NAMESPACE = "namespace"
    """ Queued when a share of the namespace has changed, because pods of the namespace may then need other grants. """


class Key(NamedTuple):
    """An object that may need a write."""

    kind: Kind
    at: Named


class _Namespace:
    """The pods and shares of one namespace, and which share governs which pod."""

    def __init__(self, most: int | None) -> None:
        self.pods: dict[str, PodRecord] = {}
        self.records: dict[str, ShareRecord] = {}
        self.shares = ShareRecords(most)
        """ The shares whose changes have been applied. """
        self.governance: dict[str, Governance] = {}
        self.concerned: dict[str, set[str]] = defaultdict(set)
        """ For each share, the pods whose governance names it. """
        self.changed: dict[str, None] = {}
        """ Shares that were added, changed or deleted, in this order, and whose change has not been applied. """
        self.moved: set[str] = set()
        """ Pods that a changed share may concern, until `State.moved` returns them. """
        self.lost: set[str] = set()
        """ Shares that have changed or may have lost a pod in `moved`, until `State.moved` returns the shares. """
        self.deferred: set[Key] = set()
        """ Objects that wait until no change is left to apply. """
        self._steps: Iterator[None] | None = None

    @property
    def behind(self) -> bool:
        """Whether changes of shares have not been applied yet."""
        return bool(self.changed) or self._steps is not None

    def advance(self, until: float) -> None:
        """Apply changes of shares until a monotonic time, but at least one step."""
        while self.behind:
            self._steps = self._steps or self._apply()
            if next(self._steps, self) is self:
                self._steps = None
            if time.monotonic() >= until:
                return

    def _apply(self) -> Iterator[None]:
        """Apply all changes of shares, step by step; then govern the pods again that they may concern, each once."""
        applied: set[str] = set()
        concerned: set[str] = set()
        while self.changed:
            name = next(iter(self.changed))
            del self.changed[name]
            changed = self.shares.change(name, self.records.get(name))
            applied |= changed
            for pod in self.shares.claims.compare(changed):
                if pod is not None:
                    concerned.add(pod)
                yield
        self.lost |= applied
        for pod in concerned & self.governance.keys():
            if pod in self.governance:  # it may have gone since the last step
                before = self.governance[pod]
                self.govern(self.pods[pod])
                after = self.governance[pod]
                if before != after or not applied.isdisjoint(after.shares):
                    self.moved.add(pod)
                    self.lost.update(before.shares)
            yield

    def put_pod(self, pod: PodRecord) -> set[str]:
        """Add or replace a pod; return the shares that were concerned before or are now."""
        self.pods[pod.at.name] = pod
        if pod.leaving:
            return self.forget(pod.at.name)
        last = last_grant(pod)
        self.shares.claims.put_pod(pod.at.name, pod.share, pod.labels, last.share if last is not None else None)
        return self.govern(pod)

    def govern(self, pod: PodRecord) -> set[str]:
        """Compute which share governs a pod; return the shares that were concerned before or are now."""
        before, after = self.governance.get(pod.at.name), govern(pod, self.shares)
        if before == after:
            return set(after.shares)
        self._ungovern(pod.at.name)
        self.governance[pod.at.name] = after
        for share in after.shares:
            self.concerned[share].add(pod.at.name)
        return {*(before.shares if before else ()), *after.shares}

    def forget(self, pod: str) -> set[str]:
        """Drop a pod's claims and governance; return the shares that it concerned."""
        self.shares.claims.drop_pod(pod)
        return self._ungovern(pod)

    def _ungovern(self, pod: str) -> set[str]:
        governance = self.governance.pop(pod, None)
        for share in governance.shares if governance else ():
            discard_from(self.concerned, share, pod)
        return set(governance.shares) if governance else set()


class State:
    """The records of all watched objects.

    Args:
        shares_per_namespace: how many shares of a namespace govern; None: all.
    """

    def __init__(self, shares_per_namespace: int | None = None) -> None:
        self.devices: dict[str, DeviceRecord] = {}
        self.nodes: dict[str, NodeRecord] = {}
        self._namespaces: dict[str, _Namespace] = defaultdict(lambda: _Namespace(shares_per_namespace))
        self._devices_of_pod: dict[Named, set[str]] = defaultdict(set)
        self._devices_of_node: dict[str, set[str]] = defaultdict(set)

    def pod(self, at: Named) -> PodRecord | None:
        """Return a pod."""
        space = self._namespaces.get(at.namespace)
        return space.pods.get(at.name) if space else None

    def share(self, at: Named) -> ShareRecord | None:
        """Return a share."""
        space = self._namespaces.get(at.namespace)
        return space.records.get(at.name) if space else None

    def shares(self, namespace: str) -> ShareRecords:
        """Return the shares of a namespace."""
        return self._current(namespace).shares

    def governance(self, at: Named) -> Governance:
        """Return what governs a pod. The pod must be in the state and not `leaving`."""
        return self._current(at.namespace).governance[at.name]

    def put_pod(self, record: PodRecord) -> set[Key]:
        """Add or replace a pod."""
        shares = self._namespaces[record.at.namespace].put_pod(record)
        return {Key(Kind.POD, record.at), *_share_keys(record.at.namespace, shares)}

    def drop_pod(self, at: Named) -> set[Key]:
        """Remove a pod that no longer exists."""
        space = self._namespaces[at.namespace]
        if space.pods.pop(at.name, None) is None:
            return set()
        shares = space.forget(at.name)
        self._drop_empty(at.namespace)
        return _share_keys(at.namespace, shares)

    def put_share(self, record: ShareRecord) -> set[Key]:
        """Add or replace a share. The time of this process's last write to the share is kept."""
        space = self._namespaces[record.at.namespace]
        old = space.records.get(record.at.name)
        keys = {Key(Kind.SHARE, record.at)}
        if old is not None and old.uid == record.uid:
            record.written = old.written
            if old.generation == record.generation:
                # Only the status has changed, so grants and governance stay valid.
                old.status, old.version = record.status, record.version
                return keys
        space.records[record.at.name] = record
        space.changed[record.at.name] = None
        return keys | {Key(Kind.NAMESPACE, Named(record.at.namespace, ""))}

    def drop_share(self, at: Named) -> set[Key]:
        """Remove a share that no longer exists."""
        space = self._namespaces[at.namespace]
        if space.records.pop(at.name, None) is None:
            return set()
        space.changed[at.name] = None
        self._drop_empty(at.namespace)
        return {Key(Kind.NAMESPACE, Named(at.namespace, ""))}

    def put_device(self, record: DeviceRecord) -> set[Key]:
        """Add or replace a GPU."""
        keys = self._forget_device(record.name)
        self.devices[record.name] = record
        for pod in named_pods(record):
            self._devices_of_pod[pod].add(record.name)
        if record.status.node:
            self._devices_of_node[record.status.node].add(record.name)
            if record.status.node not in self.nodes:
                keys.add(_device_key(record.name))
        return keys | self._device_keys(record)

    def drop_device(self, name: str) -> set[Key]:
        """Remove a GPU whose GPUDevice no longer exists."""
        return self._forget_device(name)

    def put_node(self, record: NodeRecord) -> set[Key]:
        """Add or replace a node."""
        self.nodes[record.name] = record
        return {Key(Kind.NODE, Named("", record.name))}

    def drop_node(self, name: str) -> set[Key]:
        """Remove a node that no longer exists."""
        self.nodes.pop(name, None)
        return {_device_key(device) for device in self._devices_of_node.get(name, ())}

    def moved(self, namespace: str, most: int = sys.maxsize) -> set[Key]:
        """Return objects that changes of a namespace's shares concern, and deferred ones; each is returned once.

        Args:
            namespace: the namespace.
            most: how many pods, shares and deferred objects to return; further calls return the rest.
        """
        if namespace not in self._namespaces:
            return set()
        space = self._current(namespace)
        moved, deferred = _some(space.moved, most), _some(space.deferred, most)
        shares = {name for pod in moved if pod in space.governance for name in space.governance[pod].shares}
        # Add shares that have lost a pod to another share or to no share: their status counts pods.
        shares |= _some(space.lost, most)
        return deferred | {Key(Kind.POD, Named(namespace, name)) for name in moved} | _share_keys(namespace, shares)

    def behind(self, namespace: str) -> bool:
        """Return whether changes of a namespace's shares have not been applied yet."""
        return namespace in self._namespaces and self._namespaces[namespace].behind

    def advance(self, namespace: str, until: float) -> None:
        """Apply changes of a namespace's shares until a monotonic time, but at least one step."""
        self._namespaces[namespace].advance(until)

    def defer(self, key: Key) -> None:
        """Keep an object until `moved` returns it: its namespace is behind."""
        self._namespaces[key.at.namespace].deferred.add(key)

    def pods_and_shares(self) -> Iterator[PodRecord | ShareRecord]:
        """Yield all pods and shares."""
        for space in self._namespaces.values():
            yield from space.pods.values()
            yield from space.records.values()

    def counts(self) -> dict[str, int]:
        """Return the number of objects of each kind."""
        spaces = self._namespaces.values()
        return {
            "pods": sum(len(space.pods) for space in spaces),
            "gpushares": sum(len(space.records) for space in spaces),
            "gpudevices": len(self.devices),
            "nodes": len(self.nodes),
        }

    def ungoverning(self) -> dict[str, int]:
        """Return the number of shares that do not govern, for each namespace that has too many."""
        found = {name: space.shares.claims.shares.beyond for name, space in self._namespaces.items()}
        return {name: count for name, count in found.items() if count}

    def everything(self) -> set[Key]:
        """Return the keys of all objects that may be written to."""
        keys = {Key(Kind.NODE, Named("", name)) for name in self.nodes}
        keys |= {_device_key(name) for name, device in self.devices.items() if self.is_orphan(device)}
        for namespace, space in self._namespaces.items():
            keys |= {Key(Kind.POD, Named(namespace, name)) for name in space.pods}
            keys |= _share_keys(namespace, set(space.records))
            keys |= {Key(Kind.NAMESPACE, Named(namespace, ""))} if space.behind else set()
        return keys

    def governed(self, record: ShareRecord) -> Governed:
        """Return the pods of a share."""
        space = self._current(record.at.namespace)
        found = Governed(too_many=space.shares.too_many(record.at.name))
        for name in sorted(space.concerned.get(record.at.name, ())):
            pod, governance = space.pods[name], space.governance[name]
            if governance.how is How.UNMANAGED:
                found.unannotated.append(name)
            elif governance.how is How.KEPT:
                found.refused.append((name, governance))
            else:
                found.pods.append(pod)
                if not pod.slots:
                    found.not_admitted.append(name)
                if not has_grant(pod, governance, space.shares):
                    found.without_grant.append(name)
        return found

    def usage(self, pods: Iterable[PodRecord]) -> Usage:
        """Return what the node agents report about pods."""
        wanted = list(pods)
        names = sorted({name for pod in wanted for name in self._devices_of_pod.get(pod.at, ())})
        return usage(wanted, [self.devices[name] for name in names])

    def devices_of_node(self, node: str) -> list[DeviceRecord]:
        """Return a node's GPUs."""
        return [self.devices[name] for name in sorted(self._devices_of_node.get(node, ()))]

    def is_orphan(self, device: DeviceRecord) -> bool:
        """Return whether a GPU's node is gone. Valid only once all nodes have been read."""
        return bool(device.status.node) and device.status.node not in self.nodes

    def _current(self, namespace: str) -> _Namespace:
        """Return a namespace to which all changes have been applied."""
        space = self._namespaces[namespace]
        space.advance(float("inf"))
        return space

    def _forget_device(self, name: str) -> set[Key]:
        record = self.devices.pop(name, None)
        if record is None:
            return set()
        for pod in named_pods(record):
            discard_from(self._devices_of_pod, pod, name)
        if record.status.node:
            discard_from(self._devices_of_node, record.status.node, name)
        return self._device_keys(record)

    def _device_keys(self, record: DeviceRecord) -> set[Key]:
        keys = {Key(Kind.NODE, Named("", record.status.node))} if record.status.node else set()
        for at in named_pods(record):
            space = self._namespaces.get(at.namespace)
            governance = space.governance.get(at.name) if space else None
            if governance:
                keys |= _share_keys(at.namespace, set(governance.shares))
        unmanaged = (row.pod for row in record.status.unmanaged or ())
        return keys | {Key(Kind.POD, Named(pod.namespace, pod.name)) for pod in unmanaged if pod}

    def _drop_empty(self, namespace: str) -> None:
        space = self._namespaces[namespace]
        if not space.pods and not space.records:
            del self._namespaces[namespace]


def _device_key(name: str) -> Key:
    return Key(Kind.DEVICE, Named("", name))


def _share_keys(namespace: str, names: Iterable[str]) -> set[Key]:
    return {Key(Kind.SHARE, Named(namespace, name)) for name in names}


def _some(values: set[_Value], most: int) -> set[_Value]:
    """Remove some values from a set, and return them."""
    return {values.pop() for _ in range(min(most, len(values)))}
