"""Reads `declarations/`: the class of each driver function, and the details that a class needs."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CLASSES = ("gate", "submit", "synchronise", "capture", "memory", "lifetime", "stream", "quiet", "lookup", "pass")
FOLDER = Path(__file__).resolve().parent / "declarations"

_BRACES = re.compile(r"(\w+)\{([\w,]*)\}$")
_CALL = re.compile(r"(\w+)\((.*)\)$")


@dataclass(frozen=True)
class Declaration:
    """The declaration of one exported function: one line in a file of `declarations/`.

    Attributes:
        words: details without a value, such as ``blocks``.
        calls: details with arguments: ``graph(hGraph)`` is ``{"graph": "hGraph"}``.
        options: details with a value: ``since=13020`` is ``{"since": "13020"}``.
        place: file and line, for messages.
    """

    name: str
    kind: str
    words: frozenset[str]
    calls: dict[str, str]
    options: dict[str, str]
    place: str

    @property
    def since(self) -> int:
        """The first ``CUDA_VERSION`` whose header declares the function; 0: all supported versions."""
        return int(self.options.get("since", "0"))


def expand(name: str) -> list[str]:
    """Return the names that ``NAME{,_v2}`` stands for."""
    match = _BRACES.match(name)
    return [match[1] + variant for variant in match[2].split(",")] if match else [name]


def _lines(path: Path) -> Iterator[tuple[int, str, list[str]]]:
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            name, *details = re.split(r" {2,}", line.strip())
            yield number, name, details


def _declaration(name: str, kind: str, details: list[str], place: str) -> Declaration:
    words, calls, options = set(), {}, {}
    for detail in details:
        if call := _CALL.match(detail):
            calls[call[1]] = call[2]
        elif option := re.match(r"(\w+)=(.+)$", detail):
            options[option[1]] = option[2]
        else:
            words.add(detail)
    return Declaration(name, kind, frozenset(words), calls, options, place)


def read(folder: Path = FOLDER) -> dict[str, Declaration]:
    """Return every declared function by its exported name, sorted.

    Raises:
        ValueError: a name is declared twice.
    """
    found: dict[str, Declaration] = {}
    for kind in CLASSES:
        for number, names, details in _lines(folder / f"{kind}.txt"):
            place = f"declarations/{kind}.txt:{number}"
            for name in expand(names):
                if name in found:
                    raise ValueError(f"{place}: {name} is already declared in {found[name].place}")
                found[name] = _declaration(name, kind, details, place)
    return dict(sorted(found.items()))


def nvml(folder: Path = FOLDER) -> dict[str, tuple[str, str]]:
    """Return the functions of NVML that the hook interposes, sorted: what each returns, and how that is changed."""
    rows = [(name, details) for _, names, details in _lines(folder / "nvml.txt") for name in expand(names)]
    calls = {name: _declaration(name, "nvml", details, "declarations/nvml.txt").calls for name, details in rows}
    return {name: next(iter(calls[name].items())) for name in sorted(calls)}


def core(folder: Path = FOLDER) -> list[str]:
    """Return the functions that the hook calls itself, sorted."""
    return sorted(name for _, names, _ in _lines(folder / "core.txt") for name in expand(names))
