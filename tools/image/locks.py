"""The exact versions and hashes of the image's downloads from PyPI: made by uv, checked against pyproject.toml.

`python -m tools.image lock` makes them again and so raises versions; `make check` finds a lock that does not match.
Each lock has the hashes of every platform, so one file serves x86-64 and arm64, and Python 3.11 and later.
"""

import re
import subprocess
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
RUNTIME = Path(__file__).with_name("requirements.lock")
BUILD = Path(__file__).with_name("build-requirements.lock")
# Needed in addition to the build requirements: the base of the build has no compiler.
TOOLS = ("cmake", "ninja", "pip", "ziglang")
OLDEST_PYTHON = "3.11"
_HEADER = "# Made by `python -m tools.image lock`.\n"


@dataclass(frozen=True)
class Pin:
    """One requirement of a lock."""

    requirement: Requirement
    hashes: tuple[str, ...]

    @property
    def version(self) -> str:
        """The exact version, or an empty text if the requirement allows several."""
        exact = [each.version for each in self.requirement.specifier if each.operator == "=="]
        return exact[0] if len(exact) == 1 else ""

    @property
    def applies(self) -> bool:
        """Whether this requirement applies to this system."""
        return self.requirement.marker is None or self.requirement.marker.evaluate()


def pins(text: str) -> dict[str, Pin]:
    """Return what a lock pins, by name."""
    found: dict[str, Pin] = {}
    for block in _blocks(text):
        first = block.split(" --hash=")[0].rstrip("\\ \n")
        requirement = Requirement(first)
        found[canonicalize_name(requirement.name)] = Pin(requirement, tuple(re.findall(r"--hash=(\S+)", block)))
    return found


def only(name: str, text: str) -> str:
    """Return the block of a lock that pins one distribution."""
    return next(block for block in _blocks(text) if re.match(rf"{re.escape(name)}\b", block)) + "\n"


def _blocks(text: str) -> Iterator[str]:
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    for block in re.split(r"\n(?=\S)", "\n".join(lines)):
        if block:
            yield block


def wanted() -> dict[Path, list[str]]:
    """Return the requirements from which each lock is made, according to pyproject.toml."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = document["project"]
    development = {Requirement(each).name: each for each in document["dependency-groups"]["dev"]}
    return {
        RUNTIME: [*project["dependencies"], *project["optional-dependencies"]["cluster"]],
        BUILD: [*document["build-system"]["requires"], *(development.get(tool, tool) for tool in TOOLS)],
    }


def complaints(wanted: Iterable[str], text: str) -> list[str]:
    """Return the faults of a lock for these requirements, each as a sentence."""
    held = pins(text)
    found = [f"{name} is not pinned to one version" for name, pin in held.items() if not pin.version]
    found += [f"{name} has no hash" for name, pin in held.items() if not pin.hashes]
    found += [f"{name} has a weak hash" for name, pin in held.items() if not all(map(_is_strong, pin.hashes))]
    for each in map(Requirement, wanted):
        pin = held.get(canonicalize_name(each.name))
        if not pin:
            found.append(f"{each.name} is missing")
        elif not each.specifier.contains(pin.version, prereleases=True):
            found.append(f"{each.name} {pin.version} is not what pyproject.toml requires ({each.specifier})")
    return found


def _is_strong(hashed: str) -> bool:
    return re.fullmatch(r"sha256:[0-9a-f]{64}", hashed) is not None


def make() -> None:
    """Make both locks again, with the newest versions that pyproject.toml allows.

    Raises:
        subprocess.CalledProcessError: uv found no solution; it has printed why.
    """
    for lock, requirements in wanted().items():
        with tempfile.TemporaryDirectory() as folder:
            asked = Path(folder) / "requirements.in"
            asked.write_text("\n".join(requirements) + "\n")
            command = ["uv", "pip", "compile", "--quiet", "--universal", "--python-version", OLDEST_PYTHON]
            command += ["--generate-hashes", "--no-annotate", "--no-header", str(asked)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        lock.write_text(_HEADER + done.stdout)
