"""Checks a release wheel: its files, and that its libraries load on glibc 2.17. Run by `make wheel`.

A symbol version says which glibc a function needs; the NEEDED list says which libraries contain it. Both are checked,
because before glibc 2.34 dlopen and threads were in separate libraries.
"""

import io
import sys
import zipfile
from pathlib import PurePosixPath

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

OLDEST_GLIBC = (2, 17)
LIBRARIES = {"orion/hook/liborion_hook.so", "orion/hook/liborion_hook_bench.so"}
LIBRARIES |= {"orion/hook/sim/libcuda.so.1", "orion/hook/sim/libnvidia-ml.so.1"}
MAY_NEED = {"libc.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libm.so.6", "ld-linux-x86-64.so.2"}
MAY_HOLD = {".py", ".pyi", ".so", ".1", ".yaml", ".typed", ".txt", ".html"}
PACKAGES = "orion"  # packages that need a checkout do not ship: measurements, testbed, tests, tools
PROGRAMS = {"orion/hook/orion-await-agent"}  # static: they need no library
LICENCE = "LICENSE"  # the licence of the kubelet's interface, in the folder of the stubs made from that interface


def needed(library: ELFFile) -> tuple[set[str], set[str]]:
    """Return the libraries and the glibc versions that a library needs."""
    libraries: set[str] = set()
    versions: set[str] = set()
    for section in library.iter_sections():
        if isinstance(section, DynamicSection):
            libraries |= {str(getattr(tag, "needed")) for tag in section.iter_tags("DT_NEEDED")}  # noqa: B009 - untyped
        if isinstance(section, GNUVerNeedSection):
            versions |= {entry.name for _, entries in section.iter_versions() for entry in entries}
    return libraries, versions


def may_ship(path: PurePosixPath) -> bool:
    """Return whether a file belongs in a release."""
    return path.parts[0] == PACKAGES and (path.suffix in MAY_HOLD or path.name == LICENCE or str(path) in PROGRAMS)


def complaints(wheel: zipfile.ZipFile) -> list[str]:
    """Return the faults of a wheel, each as a sentence."""
    names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    found = [f"{name} is missing" for name in sorted((LIBRARIES | PROGRAMS) - names)]
    found += [f"{name} should not ship" for name in sorted(names) if not may_ship(PurePosixPath(name))]
    for name in sorted(LIBRARIES & names):
        libraries, versions = needed(ELFFile(io.BytesIO(wheel.read(name))))
        found += [f"{name} needs {library}" for library in sorted(libraries - MAY_NEED)]
        for version in sorted(versions):
            number = version.removeprefix("GLIBC_")
            if number == "PRIVATE" or tuple(map(int, number.split("."))) > OLDEST_GLIBC:
                found.append(f"{name} needs {version}")
    return found


def main() -> int:
    """Check each wheel named on the command line."""
    status = 0
    for path in sys.argv[1:]:
        with zipfile.ZipFile(path) as wheel:
            wrong = complaints(wheel)
        print("\n".join([f"{path}: {sentence}" for sentence in wrong] or [f"{path}: loads on glibc 2.17 and later"]))
        status |= bool(wrong)
    return status


if __name__ == "__main__":
    sys.exit(main())
