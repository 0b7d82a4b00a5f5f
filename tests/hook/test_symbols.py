"""What the hook needs of a system, and which of its symbols a process sees.

The test makes one release build per state of the sources, in the tests' cache folder. zig's compiler from PyPI links
against glibc 2.17 and needs some seconds. It downloads nothing.
"""

import fcntl
import hashlib
import importlib
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection
from elftools.elf.sections import SymbolTableSection

from orion.hook import cuda_header, declared, release

OWN = {"dlsym", "dlvsym", "dlopen", "ioctl", "orion_hook_version", "__asan_default_options"}
# Threads as clients: hook/include/orion/inprocess.h.
OWN |= {"orion_start_scheduler", "orion_stop_scheduler", "orion_set_client_idx", "orion_set_client_role"}
OWN |= {"orion_set_policy", "orion_client_stream", "orion_client_figures", "orion_scheduler_error"}
PATCHED_BY_UCX = ["cuMemAlloc_v2", "cuMemAllocManaged", "cuMemAllocPitch_v2"]
PATCHED_BY_UCX += ["cuMemAllocAsync", "cuMemAllocAsync_ptsz", "cuMemAllocFromPoolAsync", "cuMemAllocFromPoolAsync_ptsz"]
PATCHED_BY_UCX += ["cuMemFree_v2", "cuMemFreeAsync", "cuMemFreeAsync_ptsz", "cuMemMap", "cuMemUnmap"]
SUBTRACT_NOTHING = bytes.fromhex("4881ec00000000")  # sub $0, %rsp
# The list omits glibc's dynamic linker, because a process under musl does not have it.
LIBRARIES = {"libc.so.6", "libdl.so.2", "libpthread.so.0"}


def _sources() -> Iterator[Path]:
    hook = Path(cuda_header.__file__).resolve().parent
    for folder in ("include", "src"):
        yield from sorted(path for path in (hook / folder).rglob("*") if path.is_file())
    yield hook / "release.py"


def _release(architecture: str) -> Path:
    state = hashlib.sha256(b"".join(path.read_bytes() for path in _sources())).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "orion"
    output = cache / f"release-{architecture}-{state}" / "liborion_hook.so"
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / "release.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not output.exists():
            print(f"linking the hook for {architecture} against glibc {release.GLIBC}, into {output}")
            release.build(output, architecture)
    return output


@pytest.fixture(scope="module", params=release.ARCHITECTURES)
def library(request: pytest.FixtureRequest) -> Path:
    """The release build of the present sources."""
    return _release(str(request.param))


def _needed(library: Path) -> list[str]:
    with library.open("rb") as file:
        dynamic = next(s for s in ELFFile(file).iter_sections() if isinstance(s, DynamicSection))
        return [str(vars(tag)["needed"]) for tag in dynamic.iter_tags("DT_NEEDED")]


def _versions(library: Path) -> set[str]:
    with library.open("rb") as file:
        needs = next(s for s in ELFFile(file).iter_sections() if isinstance(s, GNUVerNeedSection))
        return {str(version.name) for _, versions in needs.iter_versions() for version in versions}


def _symbols(library: Path, defined: bool, binding: tuple[str, ...] = ("STB_GLOBAL", "STB_WEAK")) -> set[str]:
    with library.open("rb") as file:
        table = ELFFile(file).get_section_by_name(".dynsym")
        assert isinstance(table, SymbolTableSection)
        return {
            symbol.name
            for symbol in table.iter_symbols()
            if symbol.name
            and symbol.entry["st_info"]["bind"] in binding
            and (symbol.entry["st_shndx"] != "SHN_UNDEF") == defined
        }


def test_needs_no_newer_glibc(library: Path) -> None:
    versions = _versions(library)
    assert versions
    assert all(version.startswith("GLIBC_2.") for version in versions)
    assert max(int(version.split(".")[1]) for version in versions) <= int(release.GLIBC.split(".")[1])


def test_needs_only_the_c_library(library: Path) -> None:
    needed = _needed(library)
    assert set(needed) <= LIBRARIES
    assert {"libc.so.6", "libdl.so.2"} <= set(needed)  # these hold dlopen before glibc 2.34


def test_exports_what_is_declared(library: Path) -> None:
    declarations = declared.read().values()
    interposed = {d.name for d in declarations if d.kind != "pass"} | set(declared.nvml())
    assert _symbols(library, defined=True) == OWN | interposed


def test_asks_musl_for_nothing_that_it_lacks(library: Path) -> None:
    """musl ends a process if it cannot find a symbol of a preload. Only weak symbols may be missing in musl."""
    ziglang = importlib.import_module("ziglang")
    names = (Path(str(ziglang.__file__)).parent / "lib" / "libc" / "musl" / "libc.S").read_text()
    musl = set(re.findall(r"^(?:\.globl|\.weak|WEAK\w*) (\w+)", names, re.MULTILINE))
    assert {"dlopen", "dl_iterate_phdr"} <= musl
    assert "dlvsym" not in musl
    assert _symbols(library, defined=False, binding=("STB_GLOBAL",)) <= musl


def _beginning(library: Path, name: str, size: int) -> bytes:
    with library.open("rb") as file:
        elf = ELFFile(file)
        table = elf.get_section_by_name(".dynsym")
        assert isinstance(table, SymbolTableSection)
        symbols = table.get_symbol_by_name(name)
        assert symbols is not None, name
        address = symbols[0].entry["st_value"]
        section = next(
            s for s in elf.iter_sections() if s["sh_addr"] <= address < s["sh_addr"] + s["sh_size"] and s["sh_addr"]
        )
        offset = address - section["sh_addr"]
        return bytes(section.data()[offset : offset + size])


@pytest.fixture(params=["release", "local"])
def x86_library(request: pytest.FixtureRequest) -> Path:
    """The library of a release (zig's compiler), and that of a local build."""
    if request.param == "local":
        if os.uname().machine != "x86_64":
            pytest.skip("a local build is for this machine")
        build: Path = request.getfixturevalue("c_build")
        return build / "liborion_hook.so"
    return _release("x86_64")


@pytest.mark.parametrize("name", PATCHED_BY_UCX)
def test_ucx_can_overwrite_the_first_bytes(x86_library: Path, name: str) -> None:
    """UCX 1.22 calls on only through instructions that it understands: hook/src/interposition/patchable.h."""
    assert _beginning(x86_library, name, 14) == SUBTRACT_NOTHING * 2


def test_keeps_its_thread_locals_without_a_function(library: Path) -> None:
    assert "__tls_get_addr" not in _symbols(library, defined=False)


def test_loads_here(library: Path) -> None:
    """A process without CUDA loads the hook of this machine's architecture, and runs as without it."""
    if os.uname().machine not in str(library):
        assert library.stat().st_size > 0  # linked; only a machine of that architecture can load it
        return
    done = subprocess.run(
        ["/bin/sh", "-c", "echo fine"], env={"LD_PRELOAD": str(library)}, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "fine\n", "")


def test_reads_the_environment_when_it_is_loaded_and_where_the_driver_reads_it() -> None:
    """Reading it later, or in a thread of the hook, would race with a program that changes it."""
    readers = {path.name for path in _sources() if "getenv(" in path.read_text(errors="replace")}
    assert readers == {"environment.c", "connections.c"}
