"""Which GPUShare governs a pod: the one that it names, else the one that selects it.

The one rule, for admission and for the reconciler alike. Shares say nothing about order: where two select a pod, none
of them governs, and whoever asked says so with both names.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from orion.crds.share import GPUShare


class Shares:
    """The shares of one namespace.

    A selector is looked for under one of its `matchLabels` only, so that a pod is compared with the few shares that
    may match it: in a namespace with a thousand shares that takes microseconds rather than milliseconds.

    Args:
        shares: all of them that can be read.
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
        """Return the shares that claim a pod, in the order of their names: exactly one where all is well.

        Args:
            name: the share that the pod names in its annotation; None: it names none.
            labels: the pod's.

        Returns:
            Empty: the named one is missing, or none selects the pod.
        """
        if name is not None:
            return [self._named[name]] if name in self._named else []
        likely = [*self._others, *(share for label in labels.items() for share in self._by_label.get(label, ()))]
        found = [share for share in likely if share.spec.selector is not None and share.spec.selector.matches(labels)]
        return sorted(found, key=lambda share: share.metadata.name)
