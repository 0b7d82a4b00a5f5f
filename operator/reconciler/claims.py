"""Which shares claim which pods of a namespace, kept current change by change.

After a change of one share, only the pods that its selector may match are compared, and only with this share. A share
that requires a label's value is compared with the pods that have it, and any other share with all pods of the
namespace. The result is the same as `orion.crds.governing` gives for each pod.

The comparisons come in steps, between which the caller can give the event loop back. Pods can come and go between two
steps; the next share can change when no step is left.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from orion.crds.governing import Shares
from orion.crds.selectors import Label, Matcher
from orion.crds.share import GPUShare

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class _Pod:
    share: str | None
    """ The share that the pod names. """
    labels: Mapping[str, str]
    pin: str | None
    """ The share that is pinned to the pod. """


class Claims:
    """The claims of one namespace.

    Args:
        most: how many shares govern; None: all.
    """

    def __init__(self, most: int | None = None) -> None:
        self.shares = Shares(most=most)
        """ The readable shares, as far as their changes have been made. """
        self._pods: dict[str, _Pod] = {}
        self._mentioning: dict[str, set[str]] = defaultdict(set)
        """ For each share, the pods that name it or to which it is pinned. """
        self._selectable: set[str] = set()
        """ The pods that name no share. """
        self._labelled: dict[Label, set[str]] = defaultdict(set)
        """ For each label, the selectable pods that have it. """
        self._selected: dict[str, set[str]] = defaultdict(set)
        """ For each share, the pods that its selector matches. """
        self._selecting: dict[str, set[str]] = defaultdict(set)
        """ For each pod, the shares whose selectors match it. """

    def of(self, pod: str) -> list[str]:
        """Return the sorted names of the shares that claim a pod. More than one is an error."""
        named = self._pods[pod].share
        if named is not None:
            return [named] if self.shares.governs(named) else []
        return sorted(self._selecting.get(pod, ()))

    def put_pod(self, name: str, share: str | None, labels: Mapping[str, str], pin: str | None = None) -> None:
        """Add or replace a pod.

        Args:
            name: the pod.
            share: the share that the pod names; None: it names none, so selectors decide.
            labels: the pod's labels.
            pin: the share that governed the pod when it was admitted; None: none did.
        """
        new = _Pod(share, labels, pin)
        if self._pods.get(name) == new:
            return
        self.drop_pod(name)
        self._pods[name] = new
        for mentioned in (share, pin):
            if mentioned is not None:
                self._mentioning[mentioned].add(name)
        if share is not None:
            return
        self._selectable.add(name)
        for label in labels.items():
            self._labelled[label].add(name)
        for found in self.shares.claiming(None, labels):
            self._select(name, found.metadata.name)

    def drop_pod(self, name: str) -> None:
        """Remove a pod, if it is known."""
        old = self._pods.pop(name, None)
        if old is None:
            return
        for mentioned in (old.share, old.pin):
            if mentioned is not None:
                discard_from(self._mentioning, mentioned, name)
        if old.share is not None:
            return
        self._selectable.discard(name)
        for label in old.labels.items():
            discard_from(self._labelled, label, name)
        for share in tuple(self._selecting.get(name, ())):
            self._unselect(name, share)

    def change(self, name: str, share: GPUShare | None) -> set[str]:
        """Add or replace a share, or remove it; return what `compare` must be called with next.

        Args:
            name: the share.
            share: its new form; None: it is gone or cannot be read.

        Returns:
            The share, and shares that begin or cease to govern in consequence.
        """
        return {name} | (self.shares.drop(name) if share is None else self.shares.put(share))

    def compare(self, changed: Iterable[str]) -> Iterator[str | None]:
        """Compare changed shares with pods, step by step.

        Yields:
            After each compared pod, the pod, if the change may concern it: if one of the shares claimed it before,
            claims it now, or is mentioned by it. Else None.
        """
        for share in sorted(changed):
            yield from self._compare(share)
            yield from tuple(self._mentioning.get(share, ()))

    def _compare(self, share: str) -> Iterator[str | None]:
        matcher = self.shares.matcher(share)
        for pod in self._selected.get(share, set()) | self._candidates(matcher):
            if pod not in self._selectable:
                continue
            before = share in self._selecting.get(pod, ())
            now = matcher is not None and matcher.matches(self._pods[pod].labels)
            if now and not before:
                self._select(pod, share)
            elif before and not now:
                self._unselect(pod, share)
            yield pod if before or now else None

    def _candidates(self, matcher: Matcher | None) -> set[str]:
        if matcher is None:
            return set()
        groups = [[self._labelled.get(label, set()) for label in group] for group in matcher.anchors]
        fewest = min(groups, key=lambda group: sum(map(len, group)), default=[self._selectable])
        return set().union(*fewest)

    def _select(self, pod: str, share: str) -> None:
        self._selected[share].add(pod)
        self._selecting[pod].add(share)

    def _unselect(self, pod: str, share: str) -> None:
        discard_from(self._selected, share, pod)
        discard_from(self._selecting, pod, share)


def discard_from(index: dict[_Key, set[_Value]], key: _Key, value: _Value) -> None:
    """Remove a value from one of the sets of an index; drop the set if it is then empty."""
    found = index.get(key)
    if found is not None:
        found.discard(value)
        if not found:
            del index[key]
