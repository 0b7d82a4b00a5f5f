"""Says how to install a package that the plain install leaves out: one sentence for every command.

`commands` prints this sentence when a module is missing, so commands just import what they need. The sentence names
packages, never an extra of orion-gpu: Orion is on no index, so pip would install a package that somebody else
published under that name. The printed command works in every folder.
"""

import re
import shlex
import sys

from orion.errors import NotFound

_DISTRIBUTIONS = {"hdrh": "hdrhistogram"}
_REQUIREMENT = re.compile(r"""([\w.-]+)[^;]*?\s*;.*extra == ["']([\w-]+)["']""")


def require(module: str, purpose: str) -> None:
    """Refuse if a module is missing that another process will import.

    Raises:
        NotFound: the module is not installed.
    """
    import importlib.util

    if importlib.util.find_spec(module) is None:
        raise NotFound(f"{sentence(module) or f'{module} is not installed'} ({purpose})")


def sentence(module: str) -> str:
    """Return the sentence about a missing module; empty if none of Orion's extras has the module.

    Args:
        module: as it was imported; except for those of `_DISTRIBUTIONS`, it has the name of its distribution.
    """
    top = module.partition(".")[0]
    top = _DISTRIBUTIONS.get(top, top)
    found = [extra for name, extra, _ in _optional() if name == top]
    if not found:
        return ""
    extra = found[0]
    wanted = " ".join(shlex.quote(requirement) for _, each, requirement in _optional() if each == extra)
    command = f"{shlex.quote(sys.executable)} -m pip install {wanted}"
    return f"{top} is not installed, and this command needs it: run `{command}`"


def _optional() -> list[tuple[str, str, str]]:
    """Return name, extra and requirement of every package that belongs to an extra, as this installation says."""
    from importlib import metadata

    try:
        lines = metadata.requires("orion-gpu") or []
    except metadata.PackageNotFoundError:  # a checkout that is not installed
        return []
    matches = [(_REQUIREMENT.match(line), line.partition(";")[0].strip()) for line in lines]
    return [(match[1], match[2], requirement) for match, requirement in matches if match]
