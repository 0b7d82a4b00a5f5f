"""One namespace of the state: its pods and shares, and which share governs which pod, kept current change by change."""

import time
from collections import defaultdict
from collections.abc import Iterator
from typing import TypeVar

from orion.operator.reconciler.claims import discard_from
from orion.operator.reconciler.governance import Governance, How, ShareRecords, govern
from orion.operator.reconciler.records import PodRecord, ShareRecord
from orion.operator.reconciler.share_conditions import Governed

_Value = TypeVar("_Value")


class Namespace:
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
        self.stale: set[str] = set()
        """ The nodes of pods that were in `moved`, until `State.take_changed_nodes` returns them. """
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
                    self.stale.add(self.pods[pod].node)
                    self.lost.update(before.shares)
            yield

    def take_moved(self, most: int) -> tuple[set[str], set[str]]:
        """Return pods that changed shares may concern, and shares whose pods are others now; each is returned once.

        Args:
            most: how many pods, and how many shares that have lost pods; further calls return the rest.
        """
        moved = take_some(self.moved, most)
        shares = {name for pod in moved if pod in self.governance for name in self.governance[pod].shares}
        # Add shares that have lost a pod to another share or to no share: their status counts pods.
        return moved, shares | take_some(self.lost, most)

    def put_pod(self, pod: PodRecord) -> set[str]:
        """Add or replace a pod; return the shares that were concerned before or are now."""
        self.pods[pod.at.name] = pod
        if pod.leaving:
            return self.forget(pod.at.name)
        self.shares.claims.put_pod(pod.at.name, pod.share, pod.labels, pod.pin or None)
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

    def governed(self, share: str) -> Governed:
        """Return the pods of a share, as far as changes have been applied."""
        found = Governed(too_many=self.shares.too_many(share))
        for name in sorted(self.concerned.get(share, ())):
            pod, governance = self.pods[name], self.governance[name]
            if governance.how is How.UNMANAGED:
                found.unannotated.append(name)
            elif governance.how is How.KEPT:
                found.refused.append((name, governance))
            else:
                found.pods.append(pod)
                if not pod.slots:
                    found.not_admitted.append(name)
        return found

    def forget(self, pod: str) -> set[str]:
        """Drop a pod's claims and governance; return the shares that it concerned."""
        self.shares.claims.drop_pod(pod)
        self.moved.discard(pod)
        return self._ungovern(pod)

    def _ungovern(self, pod: str) -> set[str]:
        governance = self.governance.pop(pod, None)
        for share in governance.shares if governance else ():
            discard_from(self.concerned, share, pod)
        return set(governance.shares) if governance else set()


def take_some(values: set[_Value], most: int) -> set[_Value]:
    """Remove some values from a set, and return them."""
    return {values.pop() for _ in range(min(most, len(values)))}
