"""The state of the reconciler: the records of all watched objects, and which objects a change concerns.

Records arrive one by one, in any order. Each change returns the keys of the objects whose decision may change.

The state also caches which share governs which pod, because every decision needs that. A change of a share makes its
namespace *behind*: the change is applied when the cache is next read, or before, in short steps (`advance`). A step
governs only pods again that the change may concern (`claims`).
"""

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from orion.crds.allocation import Allocation, Giver
from orion.crds.workloads import NO_REVISION
from orion.operator.reconciler.changed_nodes import ChangedNodes
from orion.operator.reconciler.devices import Devices
from orion.operator.reconciler.governance import Governance, ShareRecords
from orion.operator.reconciler.keys import Key, Kind, device_key, node_key, share_keys
from orion.operator.reconciler.namespaces import Namespace, take_some
from orion.operator.reconciler.records import Complaint, DeviceRecord, Named, NodeRecord, PodRecord, ShareRecord
from orion.operator.reconciler.rollouts import Rollouts
from orion.operator.reconciler.share_conditions import Governed
from orion.operator.reconciler.templates import Templates
from orion.operator.reconciler.usage import Usage, named_pods


class State:
    """The records of all watched objects.

    Args:
        shares_per_namespace: how many shares of a namespace govern; None: all.
        allocation: how pods get slots.
    """

    def __init__(
        self, shares_per_namespace: int | None = None, allocation: Allocation = Allocation.DEVICE_PLUGIN
    ) -> None:
        self.allocation, self.by_claims = allocation, allocation.by_claims
        self._devices = Devices()
        self.nodes: dict[str, NodeRecord] = {}
        self._namespaces: dict[str, Namespace] = defaultdict(lambda: Namespace(shares_per_namespace))
        self._deferred: dict[str, set[Key]] = defaultdict(set)
        """ By namespace, objects that wait until no change of its shares is left to apply. """
        self.rollouts, self.templates = Rollouts(), Templates()
        self._changed = ChangedNodes(self._namespaces)

    @property
    def devices(self) -> Mapping[str, DeviceRecord]:
        """The GPUs by name."""
        return self._devices.records

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
        nodes = self._place(self.pod(record.at), record)
        shares = self._namespaces[record.at.namespace].put_pod(record)
        return {Key(Kind.POD, record.at), *share_keys(record.at.namespace, shares), *nodes}

    def remember(self, at: Named, uid: str, complaint: Complaint | None) -> None:
        """Keep what was said about a pod or a node, if it still exists."""
        record = self.pod(at) if at.namespace else self.nodes.get(at.name)
        if record is not None and record.uid == uid:
            record.complaint = complaint

    def drop_pod(self, at: Named) -> set[Key]:
        """Remove a pod that no longer exists."""
        space = self._namespaces.get(at.namespace)
        if space is None or at.name not in space.pods:
            return set()
        nodes = self._place(space.pods.pop(at.name), None)
        shares = space.forget(at.name)
        self._drop_empty(at.namespace)
        return share_keys(at.namespace, shares) | nodes

    def put_share(self, record: ShareRecord) -> set[Key]:
        """Add or replace a share. The time of this process's last write to the share is kept."""
        space = self._namespaces[record.at.namespace]
        old = space.records.get(record.at.name)
        keys = {Key(Kind.SHARE, record.at)}
        if old is not None and old.uid == record.uid:
            record.written = old.written
            if old.generation == record.generation:
                # Only the status has changed, so grants and governance stay valid.
                old.status_text, old.version = record.status_text, record.version
                return keys
        space.records[record.at.name] = record
        space.changed[record.at.name] = None
        self._changed.add_nodes_of(record.at.namespace)
        return keys | {Key(Kind.NAMESPACE, Named(record.at.namespace, ""))}

    def drop_share(self, at: Named) -> set[Key]:
        """Remove a share that no longer exists."""
        space = self._namespaces.get(at.namespace)
        if space is None or space.records.pop(at.name, None) is None:
            return set()
        space.changed[at.name] = None
        self._changed.add_nodes_of(at.namespace)
        self._drop_empty(at.namespace)
        return {Key(Kind.NAMESPACE, Named(at.namespace, ""))}

    def put_device(self, record: DeviceRecord, now: float) -> set[Key]:
        """Add or replace a GPU. `now`: monotonic seconds."""
        old = self.devices.get(record.name)
        if old is not None and old.uid == record.uid:
            record.reported = now if old.status != record.status else old.reported
        keys = self.drop_device(record.name)
        self._devices.put(record)
        if self.is_orphan(record):
            keys.add(device_key(record.name))
        return keys | self._device_keys(record)

    def drop_device(self, name: str) -> set[Key]:
        """Remove a GPU whose GPUDevice no longer exists."""
        record = self._devices.drop(name)
        return set() if record is None else self._device_keys(record)

    def put_node(self, record: NodeRecord) -> set[Key]:
        """Add or replace a node. What this process said about the node is kept."""
        old = self.nodes.get(record.name)
        if old is not None and old.uid == record.uid:
            record.complaint = old.complaint
        before = (old.rollout, old.allocation) if old is not None else (NO_REVISION, Giver.DEVICE_PLUGIN)
        if before != (record.rollout, record.allocation):
            self._changed.add(record.name)
        self.nodes[record.name] = record
        return {node_key(record.name)}

    def drop_node(self, name: str) -> set[Key]:
        """Remove a node that no longer exists."""
        self.nodes.pop(name, None)
        return {device_key(device.name) for device in self._devices.of_node(name)}

    def moved(self, namespace: str, most: int = sys.maxsize) -> set[Key]:
        """Return objects that changes of a namespace's shares concern, and deferred ones; each is returned once.

        Args:
            namespace: the namespace.
            most: how many pods, shares and deferred objects to return; further calls return the rest.
        """
        if namespace not in self._namespaces:
            return set()
        space = self._current(namespace)
        waiting = self._deferred.pop(namespace, set())
        moved, shares = space.take_moved(most)
        deferred = take_some(waiting, most)
        if waiting:
            self._deferred[namespace] = waiting
        return deferred | {Key(Kind.POD, Named(namespace, name)) for name in moved} | share_keys(namespace, shares)

    def behind(self, namespace: str) -> bool:
        """Return whether changes of a namespace's shares have not been applied yet."""
        return namespace in self._namespaces and self._namespaces[namespace].behind

    def advance(self, namespace: str, until: float) -> None:
        """Apply changes of a namespace's shares until a monotonic time, but at least one step."""
        self._namespaces[namespace].advance(until)

    def defer(self, key: Key) -> None:
        """Keep an object until `moved` returns it: its namespace is behind."""
        self._deferred[key.at.namespace].add(key)

    def pods_of_node(self, node: str) -> list[PodRecord]:
        """Return the pods of a node, sorted by namespace and name."""
        return self._changed.pods(node)

    def take_changed_nodes(self, until: float = float("inf")) -> set[str]:
        """Return the nodes whose pods, or the grants of these, may have changed. Each change is reported once.

        Args:
            until: the monotonic time until which changes of shares are applied. Namespaces that are then still behind
                come with a later call; `nodes_behind` says so.
        """
        return self._changed.take(until)

    @property
    def nodes_behind(self) -> bool:
        """Whether the last `take_changed_nodes` left something for the next one."""
        return self._changed.behind

    def applied(self, pod: PodRecord) -> tuple[Governance, ShareRecords] | None:
        """Return what governs a pod, and the shares; None: the namespace is behind.

        In the second case `take_changed_nodes` returns the pod's node once the namespace is not behind any more. So
        the pods of a namespace whose shares change all the time wait, and the other pods of their nodes do not.
        """
        space = self._namespaces[pod.at.namespace]
        if space.behind:
            self._changed.wait_for(pod)
            return None
        return space.governance[pod.at.name], space.shares

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

    def everything(self) -> Iterator[Key]:
        """Yield the keys of all objects that may be written to. The state may change between two of them."""
        yield from (node_key(name) for name in tuple(self.nodes))
        yield from (Key(Kind.TEMPLATE, template) for template in self.templates.wanted() if self.by_claims)
        yield from (device_key(name) for name, device in tuple(self.devices.items()) if self.is_orphan(device))
        for namespace, space in tuple(self._namespaces.items()):
            yield from (Key(Kind.POD, Named(namespace, name)) for name in tuple(space.pods))
            yield from share_keys(namespace, space.records)
            if space.behind:
                yield Key(Kind.NAMESPACE, Named(namespace, ""))

    def governed(self, record: ShareRecord) -> Governed:
        """Return the pods of a share."""
        return self._current(record.at.namespace).governed(record.at.name)

    def usage(self, pods: Iterable[PodRecord]) -> Usage:
        """Return what the node agents report about pods."""
        found = self._devices.usage(pods)
        beside = {at for device in found.devices.values() for at in named_pods(device)}
        found.leaving = {at for at in beside if (pod := self.pod(at)) is not None and pod.leaving}
        return found

    def devices_of_node(self, node: str) -> list[DeviceRecord]:
        """Return a node's GPUs."""
        return self._devices.of_node(node)

    def is_orphan(self, device: DeviceRecord) -> bool:
        """Return whether a GPU's node is gone. Valid only once all nodes have been read."""
        return bool(device.status.node) and device.status.node not in self.nodes

    def _current(self, namespace: str) -> Namespace:
        """Return a namespace to which all changes have been applied."""
        space = self._namespaces[namespace]
        space.advance(float("inf"))
        return space

    def _device_keys(self, record: DeviceRecord) -> set[Key]:
        keys = {node_key(record.status.node)} if record.status.node else set()
        for at in named_pods(record):
            space = self._namespaces.get(at.namespace)
            governance = space.governance.get(at.name) if space else None
            if governance:
                keys |= share_keys(at.namespace, set(governance.shares))
        evicted = [row.pod for row in record.status.unmanaged or ()]
        evicted += [row.pod for row in record.status.held_slots or () if row.keeps_room_time]
        return keys | {Key(Kind.POD, Named(pod.namespace, pod.name)) for pod in evicted if pod}

    def _place(self, old: PodRecord | None, new: PodRecord | None) -> set[Key]:
        """Keep the indexes and what this process said about the pod; return nodes and templates that this concerns."""
        nodes = {node_key(node) for node in self.rollouts.place(old, new)}
        nodes |= {Key(Kind.TEMPLATE, template) for template in self.templates.place(old, new) if self.by_claims}
        if old is not None and new is not None and old.uid == new.uid:
            new.complaint = old.complaint
            if replace(new, version=old.version, running=old.running) == old:
                return nodes
        self._changed.place(old, new)
        return nodes

    def _drop_empty(self, namespace: str) -> None:
        space = self._namespaces[namespace]
        if not space.pods and not space.records:
            del self._namespaces[namespace]
