"""A fake API server of plain dicts for tests of decisions: it applies the reconciler's writes and counts versions.

The fake has the properties that these writes rely on. A patch that changes nothing makes no new version. A patch with
an old resourceVersion or another uid is a conflict. Two Events cannot have the same name. tests/cluster tests
everything else against a real API server.
"""

import copy
import random
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from orion.crds.allocation import Allocation
from orion.operator.reconciler import records
from orion.operator.reconciler.decisions import decide
from orion.operator.reconciler.keys import Key, Kind
from orion.operator.reconciler.state import State
from orion.operator.reconciler.writes import (
    DeleteDevice,
    EvictPod,
    MakeTemplate,
    PatchDevice,
    PatchNode,
    PatchShare,
    PostEvent,
    Remember,
    RemoveTaints,
    RequeueAfter,
    SayWhatIsMissing,
    Write,
)

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
Body = dict[str, Any]
ObjectKey = tuple[str, str, str]  # kind, namespace, name


class FakeCluster:
    """Objects by kind, namespace and name; `events` by namespace and name."""

    def __init__(self, bodies: Iterable[Body] = ()) -> None:
        self.objects: dict[ObjectKey, Body] = {}
        self.events: dict[tuple[str, str], PostEvent] = {}
        self.writes = 0
        self._version = 0
        for body in bodies:
            self.put(body)

    def put(self, body: Mapping[str, Any]) -> Body:
        """Create or replace an object. Fill in uid, resourceVersion and generation; keep the status unless given."""
        made = copy.deepcopy(dict(body))
        key = key_of(made)
        self._version += 1
        old = self.objects.get(key)
        meta = made["metadata"]
        meta.setdefault("uid", old["metadata"]["uid"] if old else f"uid-{self._version}")
        if old is not None and "creationTimestamp" in old["metadata"]:
            meta["creationTimestamp"] = old["metadata"]["creationTimestamp"]
        meta["resourceVersion"] = str(self._version)
        changed = old is None or old.get("spec") != made.get("spec")
        meta["generation"] = (old["metadata"]["generation"] if old else 0) + changed
        if old is not None and "status" not in made and "status" in old:
            made["status"] = old["status"]
        self.objects[key] = made
        return made

    def delete(self, key: ObjectKey) -> None:
        """Remove an object."""
        del self.objects[key]

    def carry_out(self, write: Write) -> Body | None:
        """Apply a write as the API server would; return the object, or None if there is a conflict or no object."""
        if isinstance(write, RequeueAfter | Remember):
            return None
        if isinstance(write, SayWhatIsMissing):
            write = write.event("request main: no node has 1 GPU")
        if isinstance(write, PostEvent):
            self.writes += (write.namespace, write.name) not in self.events
            self.events.setdefault((write.namespace, write.name), write)
            return None
        self.writes += 1
        if isinstance(write, MakeTemplate):
            body = copy.deepcopy({**write.template})
            body["metadata"]["namespace"] = write.namespace
            return self.objects.get(key_of(body)) or self.put(body)
        kind = {
            PatchShare: "GPUShare",
            PatchNode: "Node",
            RemoveTaints: "Node",
            PatchDevice: "GPUDevice",
            DeleteDevice: "GPUDevice",
            EvictPod: "Pod",
        }[type(write)]
        old = self.objects.get((kind, write.at.namespace, write.at.name))
        if old is None:
            return None
        if isinstance(write, DeleteDevice):
            if (write.uid, str(write.version)) == (old["metadata"]["uid"], old["metadata"]["resourceVersion"]):
                del self.objects[key_of(old)]
            return None
        if isinstance(write, RemoveTaints):
            taints: list[Body] = copy.deepcopy(old["spec"]["taints"])
            for step in write.operations:
                *_, place, key = step["path"].split("/")
                if step["op"] == "remove":
                    del taints[int(key)]
                elif step["value"] != (old["metadata"]["uid"] if key == "uid" else taints[int(place)]["key"]):
                    return None
            patch: Mapping[str, Any] = {"spec": {"taints": taints}}
        elif isinstance(write, EvictPod):
            patch = {"metadata": {"deletionTimestamp": "2026-01-02T03:04:05Z"}}
        else:
            patch = write.patch
            for key in ("uid", "resourceVersion"):
                if patch.get("metadata", {}).get(key, old["metadata"][key]) != old["metadata"][key]:
                    return None
        new = _merged(old, patch)
        if new != old:
            self._version += 1
            new["metadata"]["resourceVersion"] = str(self._version)
            self.objects[key_of(new)] = new
        return new


def key_of(body: Mapping[str, Any]) -> ObjectKey:
    """Return the key of an object."""
    return body["kind"], body["metadata"].get("namespace", ""), body["metadata"]["name"]


def _merged(old: Body, patch: Mapping[str, Any]) -> Body:
    """Apply a merge patch."""
    new = copy.deepcopy(old)
    for key, value in patch.items():
        if value is None:
            new.pop(key, None)
        elif isinstance(value, Mapping):
            new[key] = _merged(new.get(key) or {}, value)
        else:
            new[key] = copy.deepcopy(value)
    return new


def take(state: State, body: Body, now: float = 0.0) -> set[Key]:
    """Add an object to a state. `now`: monotonic seconds."""
    kind = body["kind"]
    if kind == "Pod":
        return state.put_pod(records.pod_record(body))
    if kind == "GPUShare":
        return state.put_share(records.share_record(body))
    if kind == "GPUDevice":
        return state.put_device(records.device_record(body), now)
    return state.put_node(records.node_record(body))


def forget(state: State, key: ObjectKey) -> set[Key]:
    """Remove an object from a state."""
    kind, at = key[0], records.Named(key[1], key[2])
    if kind == "Pod":
        return state.drop_pod(at)
    if kind == "GPUShare":
        return state.drop_share(at)
    return state.drop_device(at.name) if kind == "GPUDevice" else state.drop_node(at.name)


def state_of(
    cluster: FakeCluster, order: random.Random | None = None, most: int | None = None, by_claims: bool = False
) -> State:
    """Return the state of a reconciler that has listed all objects, in the given random order.

    Args:
        most: how many shares of a namespace govern; None: all.
        by_claims: whether pods get slots by ResourceClaims.
    """
    allocation = Allocation.DRA if by_claims else Allocation.DEVICE_PLUGIN
    state, bodies = State(most, allocation), list(cluster.objects.values())
    if order:
        order.shuffle(bodies)
    for body in bodies:
        take(state, body)
    return state


class Reconciler:
    """Decides and writes until nothing is left to write, or until it is killed after a number of writes."""

    def __init__(self, cluster: FakeCluster, state: State, order: random.Random | None = None) -> None:
        self.cluster, self.state, self._order = cluster, state, order
        self.time = 0.0

    def run(self, keys: Iterable[Key] | None = None, killed_after: int | None = None) -> int:
        """Reconcile keys (default: all) and the keys that follow from them; return the number of writes."""
        queue = sorted(self.state.everything() if keys is None else keys)
        before = self.cluster.writes
        for _ in range(10_000):
            if not queue:
                return self.cluster.writes - before
            if self._order:
                self._order.shuffle(queue)
            key = queue.pop()
            if key.kind is Kind.NAMESPACE:
                queue += self.state.moved(key.at.namespace)
                continue
            self.time += 60.0  # longer than any delay between two writes of a status
            for write in decide(self.state, key, NOW, self.time):
                if killed_after is not None and self.cluster.writes - before >= killed_after:
                    return self.cluster.writes - before
                if isinstance(write, Remember):
                    self.state.remember(write.at, write.uid, write.complaint)
                answer = self.cluster.carry_out(write)
                device = ("GPUDevice", "", key.at.name)
                if isinstance(write, DeleteDevice) and device not in self.cluster.objects:
                    queue += forget(self.state, device)
                if answer is not None:
                    queue += take(self.state, answer) - {key}
        raise AssertionError("the reconciler still writes after 10 000 steps")
