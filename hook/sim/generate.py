"""Writes the simulated driver's generated sources from NVIDIA's headers.

Three files: a weak stub for every function of cuda.h (what is written by hand replaces it at link time), the
per-thread-default-stream variants, and the table behind cuGetProcAddress with the versions of cudaTypedefs.h.

Usage: python hook/sim/generate.py INCLUDE_FOLDER [--check]
"""

import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
DRIVER_VERSION = 13000
NOT_IN_CUDA_H = ("cuProfilerInitialize", "cuProfilerStart", "cuProfilerStop")
# Symbols whose order of versions does not follow from their names: (function, version) -> symbol.
NAMED_OTHERWISE = {
    ("cuGraphInstantiate", 10000): "cuGraphInstantiate",
    ("cuGraphInstantiate", 11000): "cuGraphInstantiate_v2",
    ("cuGraphInstantiate", 12000): "cuGraphInstantiateWithFlags",
}


def prototypes(include: Path) -> dict[str, str]:
    """All functions of cuda.h, every version and variant.

    Returns:
        Symbol -> parameter list as text.
    """
    found: dict[str, str] = {}
    for define in ("-DPLAIN", "-DCUDA_API_PER_THREAD_DEFAULT_STREAM", "-D__CUDA_API_VERSION_INTERNAL"):
        command = ["gcc", "-E", "-P", define, f"-I{include}", str(include / "cuda.h")]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        for name, parameters in re.findall(r"\bCUresult\s+(cu\w+)\s*\(([^;{]*)\)\s*(?:__attribute__[^;]*)?;", text):
            found.setdefault(name, " ".join(parameters.split()))
    return found


def base_of(symbol: str) -> str:
    """The function's name without version and variant."""
    return re.sub(r"(_v\d+)?(_pt[ds]s?z?)?$", "", re.sub(r"_(ptsz|ptds)$", "", symbol))


def version_rank(symbol: str) -> int:
    """1 for a plain symbol, n for one that ends in _vn."""
    match = re.search(r"_v(\d+)$", symbol)
    return int(match.group(1)) if match else 1


def variant_of(symbol: str) -> str:
    """The per-thread suffix, empty if there is none."""
    match = re.search(r"_(ptsz|ptds)$", symbol)
    return match.group(1) if match else ""


def entries(include: Path, symbols: set[str]) -> list[tuple[str, int, bool, str]]:
    """Rows of the look-up table: function, version from which it counts, per-thread variant, symbol."""
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
            if symbol is None and same:  # the newest version is the symbol of the highest number, and so on down
                place = index + len(same) - len(known)
                symbol = same[max(place, 0)]
            if symbol is not None and version <= DRIVER_VERSION:
                rows.append((name, version, per_thread, symbol))
    rows.append(("cuGraphInstantiate", 12000, False, "cuGraphInstantiateWithFlags"))
    return sorted(set(rows))


def per_thread_sources(found: dict[str, str]) -> str:
    """Variants that call the plain function with the default stream meaning the thread's own."""
    lines = [
        "/* Written by generate.py: do not edit. The default stream is the calling thread's in here. */",
        "#define __CUDA_API_VERSION_INTERNAL",
        '#include "sim.h"',
        "",
    ]
    for symbol, parameters in sorted(found.items()):
        if not variant_of(symbol):
            continue
        plain = re.sub(r"_(ptsz|ptds)$", "", symbol)
        if plain not in found or symbol == "cuGetProcAddress_v2_ptsz":
            continue
        names = [re.sub(r"\[.*", "", p).split()[-1].lstrip("*") for p in parameters.split(",")]
        lines += [
            f"CUresult CUDAAPI {symbol}({parameters}) {{",
            "    sim_per_thread_default = true;",
            f"    CUresult result = {plain}({', '.join(names)});",
            "    sim_per_thread_default = false;",
            "    return result;",
            "}",
        ]
    return "\n".join(lines) + "\n"


def render(include: Path) -> dict[str, str]:
    """File name -> contents."""
    found = prototypes(include)
    symbols = set(found) | set(NOT_IN_CUDA_H)
    stubs = ["/* Written by generate.py: do not edit. What the simulation does not do, says so. */"]
    stubs += ['#include "stub.h"', ""]
    stubs += [f"SIM_STUB({symbol})" for symbol in sorted(symbols) if not variant_of(symbol)]
    table = ["/* Written by generate.py: do not edit. Function, version from which it counts, per thread, symbol. */"]
    table += [
        f"ENTRY({name}, {version}, {int(per_thread)}, {symbol})"
        for name, version, per_thread, symbol in entries(include, symbols)
    ]
    return {
        "generated_stubs.c": "\n".join(stubs) + "\n",
        "generated_per_thread.c": per_thread_sources(found),
        "generated_entries.inc": "\n".join(table) + "\n",
    }


def main() -> int:
    """Write the files, or with --check say whether they are up to date."""
    files = render(Path(sys.argv[1]))
    stale = [name for name, text in files.items() if not (HERE / name).exists() or (HERE / name).read_text() != text]
    if "--check" in sys.argv:
        print("\n".join(f"hook/sim/{name} is not up to date" for name in stale), end="\n" if stale else "")
        return 1 if stale else 0
    for name in stale:
        (HERE / name).write_text(files[name])
    return 0


if __name__ == "__main__":
    sys.exit(main())
