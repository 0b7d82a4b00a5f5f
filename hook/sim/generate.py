"""Writes the simulated driver's generated sources from NVIDIA's headers.

It writes three files into `generated/`:

    stubs.c         a weak stub for every function of cuda.h; the linker replaces it by the handwritten function, if any
    per_thread.c    the variants of functions that use the calling thread's own default stream
    entries.inc     the table of cuGetProcAddress: which symbol belongs to which version, from cudaTypedefs.h

Usage: python hook/sim/generate.py [--check]
"""

import re
import sys
from pathlib import Path

from orion.hook import cuda_header
from orion.hook.cuda_header import Function

GENERATED = Path(__file__).parent / "generated"
DRIVER_VERSION = 13000
NOT_IN_CUDA_H = ("cuProfilerInitialize", "cuProfilerStart", "cuProfilerStop")
# Where a symbol's name does not show its version: (function, first CUDA version) -> symbol.
NAMED_OTHERWISE = {
    ("cuGraphInstantiate", 10000): "cuGraphInstantiate",
    ("cuGraphInstantiate", 11000): "cuGraphInstantiate_v2",
    ("cuGraphInstantiate", 12000): "cuGraphInstantiateWithFlags",
}


def base_of(symbol: str) -> str:
    """Return the function's name without version and variant."""
    return re.sub(r"(_v\d+)?(_pt[ds]s?z?)?$", "", re.sub(r"_(ptsz|ptds)$", "", symbol))


def version_rank(symbol: str) -> int:
    """Return n for a symbol that ends in _vn, 1 for one without a suffix."""
    match = re.search(r"_v(\d+)$", symbol)
    return int(match.group(1)) if match else 1


def variant_of(symbol: str) -> str:
    """Return the suffix of a per-thread variant, without the underscore; empty for a plain symbol."""
    match = re.search(r"_(ptsz|ptds)$", symbol)
    return match.group(1) if match else ""


def entries(include: Path, symbols: set[str]) -> list[tuple[str, int, bool, str]]:
    """Return rows of the look-up table: function, first CUDA version, whether per-thread, symbol."""
    text = "".join((include / name).read_text() for name in ("cudaTypedefs.h", "cudaProfilerTypedefs.h"))
    versions: dict[tuple[str, bool], set[int]] = {}
    for name, version, variant in re.findall(r"PFN_(cu\w+?)_v(\d{4,5})(_ptsz|_ptds)?\)", text):
        versions.setdefault((name, bool(variant)), set()).add(int(version))
    rows = []
    for (name, per_thread), known in sorted(versions.items()):
        same = [s for s in symbols if base_of(s) == name and bool(variant_of(s)) == per_thread]
        same.sort(key=lambda s: version_rank(re.sub(r"_(ptsz|ptds)$", "", s)))
        for index, version in enumerate(sorted(known)):
            symbol = NAMED_OTHERWISE.get((name, version))
            if symbol is None and same:
                # Count from the end: the newest version has the symbol with the highest number.
                position = index + len(same) - len(known)
                symbol = same[max(position, 0)]
            if symbol is not None and version <= DRIVER_VERSION:
                rows.append((name, version, per_thread, symbol))
    rows.append(("cuGraphInstantiate", 12000, False, "cuGraphInstantiateWithFlags"))
    return sorted(set(rows))


def per_thread_sources(found: dict[str, Function]) -> str:
    """Return the source of the variants, which call the plain function with the thread's own default stream."""
    lines = [
        "/* Written by generate.py: do not edit. In these functions the default stream is the calling thread's. */",
        "#define __CUDA_API_VERSION_INTERNAL",
        '#include "per_thread.h"',
        "",
    ]
    for symbol, function in found.items():
        plain = re.sub(r"_(ptsz|ptds)$", "", symbol)
        if plain == symbol or plain not in found or symbol == "cuGetProcAddress_v2_ptsz":
            continue
        parameters = ", ".join(map(str, function.parameters))
        names = ", ".join(parameter.name for parameter in function.parameters)
        lines.append(f"SIM_PER_THREAD({symbol}, {plain}, ({parameters}), ({names}))")
    return "\n".join(lines) + "\n"


def render(include: Path) -> dict[str, str]:
    """Return the contents of each generated file by its name."""
    found = cuda_header.functions(include / "cuda.h")
    symbols = set(found) | set(NOT_IN_CUDA_H)
    stubs = [
        "/* Written by generate.py: do not edit. A function that is not simulated returns CUDA_ERROR_NOT_SUPPORTED. */"
    ]
    stubs += ['#include "stub.h"', ""]
    stubs += [f"SIM_STUB({symbol})" for symbol in sorted(symbols) if not variant_of(symbol)]
    table = ["/* Written by generate.py: do not edit. Function, first version, per thread, symbol. */"]
    table += [
        f"ENTRY({name}, {version}, {int(per_thread)}, {symbol})"
        for name, version, per_thread, symbol in entries(include, symbols)
    ]
    return {
        "stubs.c": "\n".join(stubs) + "\n",
        "per_thread.c": per_thread_sources(found),
        "entries.inc": "\n".join(table) + "\n",
    }


def main() -> int:
    """Write the files, or with --check report whether they are up to date."""
    files = {GENERATED / name: text for name, text in render(cuda_header.find().parent).items()}
    stale = [path for path, text in files.items() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv:
        for path in stale:
            print(f"hook/sim/generated/{path.name} is not up to date: run `make generate`")
        return 1 if stale else 0
    for path in stale:
        path.write_text(files[path])
    return 0


if __name__ == "__main__":
    sys.exit(main())
