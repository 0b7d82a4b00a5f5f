"""The rule of which share claims a pod, written in the plainest way: tests compare the indices with it."""

from collections.abc import Iterable, Mapping

from orion.crds.selectors import Requirement
from orion.crds.share import GPUShare


def selects(share: GPUShare, labels: Mapping[str, str]) -> bool:
    """Return whether a share's selector matches labels."""
    selector = share.spec.selector
    if selector is None:
        return False
    same = all(labels.get(key) == value for key, value in (selector.match_labels or {}).items())
    return same and all(_meets(each, labels) for each in selector.match_expressions or ())


def _meets(condition: Requirement, labels: Mapping[str, str]) -> bool:
    if condition.operator in ("Exists", "DoesNotExist"):
        return (condition.key in labels) == (condition.operator == "Exists")
    found = condition.key in labels and labels[condition.key] in (condition.values or ())
    return found == (condition.operator == "In")


def oldest(shares: Iterable[GPUShare], most: int) -> list[GPUShare]:
    """Return the shares of a namespace that govern: the oldest ones, and of equally old ones the first by name."""
    return sorted(shares, key=lambda share: (share.metadata.creation_timestamp or "", share.metadata.name))[:most]


def claiming(shares: Iterable[GPUShare], most: int, name: str | None, labels: Mapping[str, str]) -> list[str]:
    """Return the names of the shares that claim a pod."""
    found = oldest(shares, most)
    if name is not None:
        return [share.metadata.name for share in found if share.metadata.name == name]
    return sorted(share.metadata.name for share in found if selects(share, labels))
