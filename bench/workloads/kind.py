"""The description of one workload, which needs none of the packages that the workload uses."""

import functools
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from orion.bench.workloads import options as of
from orion.bench.workloads.stand_ins import Load


@dataclass(frozen=True)
class Kind:
    """One workload."""

    summary: str
    options: type[of.Options]
    factory: str
    """`module:class`, with a module of this package; the class takes options and a Place."""
    stand_in: Callable[[Any], Load] | None = None
    """Returns the simulated workload for checked options; None: this workload is itself simulated."""
    gib: float = 5.0
    """An upper estimate of its GPU memory, GiB."""
    packages: tuple[str, ...] = ()
    """The modules of public packages that this program uses; empty: it is no public program."""

    @property
    def missing(self) -> list[str]:
        """Return the packages that are not installed here."""
        return [name for name in self.packages if importlib.util.find_spec(name) is None]

    @property
    def versions(self) -> dict[str, str]:
        """Return the versions of its packages, as far as they are installed."""
        known = {name: _distributions().get(name, []) for name in self.packages}
        return {name: metadata.version(found[0]) for name, found in known.items() if found}


@functools.cache
def _distributions() -> dict[str, list[str]]:
    """Return the installed distributions by the modules that they contain; this reads the metadata of all."""
    return dict(metadata.packages_distributions())
