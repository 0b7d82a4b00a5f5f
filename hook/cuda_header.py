"""Reads the functions of cuda.h: their names as the driver exports them, parameters and return types.

cuda.h names each function once and maps that name to its newest ABI by macros. It declares the older ABIs and the
variants for per-thread default streams only where ``__CUDA_API_VERSION_INTERNAL`` is defined. This module therefore
runs the header through the C preprocessor with that macro. One regular expression reads the result. Rejected: libclang
(a second compiler to install, for 700 prototypes of one shape), and a list that people maintain.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_PROTOTYPE = re.compile(r"\bCUresult\s+(cu[A-Z]\w*)\s*\(([^;{}]*?)\)\s*;", re.DOTALL)
_ATTRIBUTE = re.compile(r"__attribute__\s*\(\(.*?\)\)\s*")
_PARAMETER = re.compile(r"(.*?)(\w+)$", re.DOTALL)
_VARIANT = re.compile(r"(_v\d+)?(_ptsz|_ptds)?$")


@dataclass(frozen=True)
class Parameter:
    """One parameter of a driver function."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}{'' if self.type.endswith('*') else ' '}{self.name}"


@dataclass(frozen=True)
class Function:
    """One exported function of the driver. Every ABI variant is a separate function."""

    name: str
    parameters: tuple[Parameter, ...]

    @property
    def per_thread(self) -> bool:
        """Whether a null stream means the calling thread's default stream."""
        return self.name.endswith(("_ptsz", "_ptds"))

    @property
    def base(self) -> str:
        """The function's name for ``cuGetProcAddress``."""
        return _VARIANT.sub("", self.name)


def _parameters(text: str) -> Iterator[Parameter]:
    if text.strip() in ("", "void"):
        return
    for part in text.split(","):
        match = _PARAMETER.match(" ".join(part.split()))
        if match is None:
            raise ValueError(f"cannot read the parameter {part!r}")
        yield Parameter(re.sub(r"\s*(\*+)$", r" \1", match[1].strip()), match[2])


def find() -> Path:
    """Return the path of cuda.h: from PyPI's ``nvidia-cuda-runtime``, else from a toolkit.

    Raises:
        FileNotFoundError: cuda.h is in neither place.
    """
    folders = [Path(entry) / "nvidia" / "cu13" / "include" for entry in sys.path]
    folders += [Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "include"]
    for folder in folders:
        if (folder / "cuda.h").is_file():
            return folder / "cuda.h"
    raise FileNotFoundError("cuda.h not found: run `pip install nvidia-cuda-runtime==13.5.37`, or give --header PATH")


def version(header: Path) -> int:
    """Return the header's ``CUDA_VERSION``, such as 13050."""
    match = re.search(r"#define CUDA_VERSION (\d+)", header.read_text())
    if match is None:
        raise ValueError(f"{header} defines no CUDA_VERSION")
    return int(match[1])


def functions(header: Path) -> dict[str, Function]:
    """Return every function that the header declares, by its exported name, sorted.

    Raises:
        ValueError: two declarations of one name differ in the number of their parameters.
    """
    command = [os.environ.get("CC", "cc"), "-E", "-P", "-D__CUDA_API_VERSION_INTERNAL", str(header)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: dict[str, Function] = {}
    for name, parameters in _PROTOTYPE.findall(_ATTRIBUTE.sub("", text)):
        function = Function(name, tuple(_parameters(parameters)))
        if len(found.setdefault(name, function).parameters) != len(function.parameters):
            raise ValueError(f"cuda.h declares {name} twice, with different numbers of parameters")
    return dict(sorted(found.items()))
