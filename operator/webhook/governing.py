"""Which GPUShare governs a pod: the one that it names, else the one that selects it.

Shares say nothing about order: where two select a pod, none of them governs. The reconciler keeps to the same rule,
over an index of its own, for it asks of every pod again whenever a share changes.
"""

from collections.abc import Iterable, Mapping

from orion.crds.share import GPUShare


def candidates(name: str | None, labels: Mapping[str, str], shares: Iterable[GPUShare]) -> list[GPUShare]:
    """Return the shares that claim a pod: exactly one where all is well.

    Args:
        name: the share that the pod names in its annotation; None: it names none.
        labels: the pod's.
        shares: those of the pod's namespace.

    Returns:
        In the order of their names. Empty: the named one is missing, or none selects the pod.
    """
    if name is not None:
        return [share for share in shares if share.metadata.name == name]
    found = [share for share in shares if share.spec.selector is not None and share.spec.selector.matches(labels)]
    return sorted(found, key=lambda share: share.metadata.name)
