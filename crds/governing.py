"""Finds the GPUShare that governs a pod: the share that the pod names, otherwise the share whose selector matches.

The webhook and the reconciler both use this rule. Selectors have no order: if those of two shares match a pod, neither
share governs it, and the caller reports both names.

Only the oldest shares of a namespace govern, up to a bound. So many new shares neither make decisions slow nor replace
older shares.
"""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from orion.crds.selectors import Label, Matcher
from orion.crds.share import GPUShare

SHARES_MAX = 200
""" The default of how many shares of a namespace govern. """


class Shares:
    """The shares of one namespace.

    Each share is indexed by labels of which its selector requires one, so a pod is compared only with the few shares
    that may match it. In a namespace with a thousand shares that takes microseconds rather than milliseconds.

    Args:
        shares: readable shares of the namespace.
        most: how many shares govern; None: all.
    """

    def __init__(self, shares: Iterable[GPUShare] = (), most: int | None = None) -> None:
        self.most = most
        self._named = {share.metadata.name: share for share in shares}
        self._order = sorted(map(_age, self._named.values()))
        """ Creation time and name of all shares, oldest first. """
        self._matchers: dict[str, Matcher | None] = {}
        """ Of the shares that govern. None: the share has no selector. """
        self._by_label: dict[Label, set[str]] = defaultdict(set)
        self._others: set[str] = set()
        """ Shares whose selectors require no label with a value. """
        for _, name in self._order[:most]:
            self._begin(name)

    def __iter__(self) -> Iterator[GPUShare]:
        return iter(self._named.values())

    def put(self, share: GPUShare) -> set[str]:
        """Add or replace a share; return the shares that begin or cease to govern, and the share itself."""
        name = share.metadata.name
        changed = self.drop(name) | {name}
        self._named[name] = share
        insort(self._order, _age(share))
        if self.most is None or bisect_left(self._order, _age(share)) < self.most:
            self._begin(name)
        return changed ^ self._move_bound()

    def drop(self, name: str) -> set[str]:
        """Remove a share, if it is known; return the shares that begin or cease to govern, except the share itself."""
        share = self._named.pop(name, None)
        if share is None:
            return set()
        del self._order[bisect_left(self._order, _age(share))]
        self._cease(name)
        return self._move_bound()

    def governs(self, name: str) -> bool:
        """Return whether a share exists and is within the bound."""
        return name in self._matchers

    def is_beyond(self, name: str) -> bool:
        """Return whether a share exists and does not govern, because the namespace has too many older shares."""
        return name in self._named and name not in self._matchers

    @property
    def beyond(self) -> int:
        """The number of shares that do not govern."""
        return len(self._named) - len(self._matchers)

    def matcher(self, name: str) -> Matcher | None:
        """Return a share's selector; None: the share selects no pod."""
        return self._matchers.get(name)

    def claiming(self, name: str | None, labels: Mapping[str, str]) -> list[GPUShare]:
        """Return the shares that claim a pod, sorted by name. Exactly one is the normal case.

        Args:
            name: the share that the pod names in its annotation; None: the pod has no such annotation.
            labels: the pod's labels.

        Returns:
            An empty list if the named share does not exist or does not govern, or if no selector matches the pod.
        """
        if name is not None:
            return [self._named[name]] if self.governs(name) else []
        likely = self._others.union(*(self._by_label[label] for label in labels.items() if label in self._by_label))
        return [self._named[each] for each in sorted(likely) if self._selects(each, labels)]

    def _selects(self, name: str, labels: Mapping[str, str]) -> bool:
        matcher = self._matchers[name]
        return matcher is not None and matcher.matches(labels)

    def _move_bound(self) -> set[str]:
        """Compare the last share within the bound and the first one beyond it; return those that change."""
        changed = set()
        for place in () if self.most is None else (self.most - 1, self.most):
            name = self._order[place][1] if place < len(self._order) else None
            if name is not None and (name in self._matchers) != (place != self.most):
                (self._cease if place == self.most else self._begin)(name)
                changed.add(name)
        return changed

    def _begin(self, name: str) -> None:
        selector = self._named[name].spec.selector
        matcher = self._matchers[name] = None if selector is None else Matcher(selector)
        if matcher is not None and not matcher.anchors:
            self._others.add(name)
        for label in _anchor(matcher):
            self._by_label[label].add(name)

    def _cease(self, name: str) -> None:
        matcher = self._matchers.pop(name, None)
        self._others.discard(name)
        for label in _anchor(matcher):
            self._by_label[label].discard(name)
            if not self._by_label[label]:
                del self._by_label[label]


def _anchor(matcher: Matcher | None) -> tuple[Label, ...]:
    return min(matcher.anchors, key=lambda group: (len(group), group), default=()) if matcher is not None else ()


def _age(share: GPUShare) -> tuple[str, str]:
    return share.metadata.creation_timestamp or "", share.metadata.name
