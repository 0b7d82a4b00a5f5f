"""Finds the GPUShare that governs a pod: the share that the pod names, otherwise the share whose selector matches.

The webhook and the reconciler both use this rule. Shares have no order. If the selectors of two shares match a pod,
neither share governs it, and the caller reports both names.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from orion.crds.share import GPUShare


class Shares:
    """The shares of one namespace.

    Each share is indexed by one of its selector's `matchLabels`, so a pod is compared only with the few shares that may
    match it. In a namespace with a thousand shares that takes microseconds rather than milliseconds.

    Args:
        shares: all readable shares of the namespace.
    """

    def __init__(self, shares: Iterable[GPUShare] = ()) -> None:
        self._named: dict[str, GPUShare] = {}
        self._by_label: dict[tuple[str, str], list[GPUShare]] = defaultdict(list)
        self._others: list[GPUShare] = []
        for share in shares:
            self._named[share.metadata.name] = share
            if share.spec.selector is not None:
                label = min((share.spec.selector.match_labels or {}).items(), default=None)
                (self._others if label is None else self._by_label[label]).append(share)

    def __iter__(self) -> Iterator[GPUShare]:
        return iter(self._named.values())

    def claiming(self, name: str | None, labels: Mapping[str, str]) -> list[GPUShare]:
        """Return the shares that claim a pod, sorted by name. Exactly one is the normal case.

        Args:
            name: the share that the pod names in its annotation; None: the pod has no such annotation.
            labels: the pod's labels.

        Returns:
            An empty list if the named share does not exist, or if no selector matches the pod.
        """
        if name is not None:
            return [self._named[name]] if name in self._named else []
        likely = [*self._others, *(share for label in labels.items() for share in self._by_label.get(label, ()))]
        found = [share for share in likely if share.spec.selector is not None and share.spec.selector.matches(labels)]
        return sorted(found, key=lambda share: share.metadata.name)
