"""The image of this checkout, and modified versions of it: an older and a newer one, for tests of upgrades.

An edition changes the version numbers in the sources before they are built. So tests of an upgrade use the chart, the
hook and the protocol as they are now. The image of a real earlier release was rejected: someone would have to store it,
and it would not test the current change.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from orion.hook.layout import LAYOUT_VERSION

Sources = Mapping[str, bytes]


@dataclass(frozen=True)
class Edition:
    """How an image differs from this checkout; by default not at all.

    Args:
        tag: of the image.
        version: of the distribution, and so of the hook's folder on a node.
        layout: version of the pages that agent and hook share.
    """

    tag: str = "dev"
    version: str = ""
    layout: int = 0

    def of(self, sources: Sources) -> dict[str, bytes]:
        """Return the sources of this edition.

        Raises:
            ValueError: a source has no version where one is expected.
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
# The next layout: an agent that uses it must support hooks of this checkout.
NEWER = Edition("newer", version="0.2.0", layout=LAYOUT_VERSION + 1)


def version(sources: Sources) -> str:
    """Return the version of a wheel that is built from these sources."""
    found = re.search(r'(?m)^version = "([^"]+)"$', sources["pyproject.toml"].decode())
    if not found:
        raise ValueError("pyproject.toml has no version")
    return found[1]


def _replace(sources: dict[str, bytes], path: str, what: str, by: str) -> None:
    text, count = re.subn(what, by, sources[path].decode(), count=1)
    if not count:
        raise ValueError(f"{path} has nothing that matches {what}")
    sources[path] = text.encode()
