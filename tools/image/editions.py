"""The image of this checkout, and of Orions that are not: an older one and a newer one, to upgrade from and to.

Made by changing what the sources say of themselves before they are built, so that tests of an upgrade use the chart,
the hook and the protocol as they are. An image of a real earlier release was refused: it would have to be kept
somewhere, and would not be about this change.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

Sources = Mapping[str, bytes]


@dataclass(frozen=True)
class Edition:
    """What differs from this checkout: nothing unless told.

    Args:
        tag: of the image.
        version: of the distribution, and so of the hook's folder on a node.
        layout: of the pages that agent and hook share.
    """

    tag: str = "dev"
    version: str = ""
    layout: int = 0

    def of(self, sources: Sources) -> dict[str, bytes]:
        """Return sources as this edition has them.

        Raises:
            ValueError: a place that says a version is not where it was.
        """
        changed = dict(sources)
        if self.version:
            _replace(changed, "pyproject.toml", r'(?m)^version = "[^"]+"$', f'version = "{self.version}"')
        if self.layout:
            _replace(changed, "hook/include/orion/policy.h", r"(ORION_LAYOUT_VERSION) \d+u", rf"\1 {self.layout}u")
            _replace(changed, "hook/layout.py", r"(?m)^LAYOUT_VERSION = \d+", f"LAYOUT_VERSION = {self.layout}")
        return changed


THIS = Edition()
OLDER = Edition("older", version="0.0.9")
# The layout after this one: whoever speaks it is to get on with hooks of this checkout.
NEWER = Edition("newer", version="0.2.0", layout=3)


def version(sources: Sources) -> str:
    """Return the version that a wheel of these sources has."""
    found = re.search(r'(?m)^version = "([^"]+)"$', sources["pyproject.toml"].decode())
    if not found:
        raise ValueError("pyproject.toml says no version")
    return found[1]


def _replace(sources: dict[str, bytes], path: str, what: str, by: str) -> None:
    text, count = re.subn(what, by, sources[path].decode(), count=1)
    if not count:
        raise ValueError(f"{path} says nothing that looks like {what}")
    sources[path] = text.encode()
