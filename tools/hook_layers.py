"""Rejects includes and calls between folders of `hook/src` that do not go down to a lower layer.

`hook/src/layers.txt` lists the folders from top to bottom. Includes are read from the sources. Calls are read from the
objects of a build, because a file can declare a function itself, without an include. A call is an undefined symbol of
one object that another object defines.

A list of exceptions was rejected. Two files that need each other belong in one folder, or one passes a function to the
other.
"""

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

SOURCES = Path(__file__).parents[1] / "hook" / "src"
_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


@dataclass(frozen=True)
class Use:
    """One file of `hook/src` uses another: by an include, or by a symbol."""

    user: str
    used: str
    how: str


def layers(table: Path) -> dict[str, int]:
    """Return the layer of each folder, 0 for the top."""
    lines = [line.split("#")[0].split() for line in table.read_text().splitlines()]
    return {folder: layer for layer, folders in enumerate(filter(None, lines)) for folder in folders}


def includes(sources: Path) -> Iterator[Use]:
    """Yield the includes of one file of `sources` by another."""
    for path in sorted(sources.rglob("*")):
        if path.suffix not in (".c", ".h", ".inc"):
            continue
        for name in _INCLUDE.findall(path.read_text()):
            found = next((each for each in (sources / name, path.parent / name) if each.is_file()), None)
            if found is not None:
                yield Use(str(path.relative_to(sources)), str(found.relative_to(sources)), "includes")


def _symbols(path: Path) -> tuple[set[str], set[str]]:
    """Return the global symbols that an object defines, and those that it leaves undefined."""
    defined: set[str] = set()
    undefined: set[str] = set()
    with path.open("rb") as file:
        for section in ELFFile(file).iter_sections():
            if not isinstance(section, SymbolTableSection):
                continue
            for symbol in section.iter_symbols():
                if symbol.name and symbol["st_info"]["bind"] != "STB_LOCAL":
                    (undefined if symbol["st_shndx"] == "SHN_UNDEF" else defined).add(symbol.name)
    return defined, undefined


def calls(folders: Sequence[Path], sources: Path) -> Iterator[Use]:
    """Yield the symbols of one file of `sources` that the object of another file uses.

    Args:
        folders: of objects; the first that has a file's object is used.
        sources: of the hook.

    Raises:
        FileNotFoundError: a source has no object; the message says how to build it.
    """
    tables = {}
    for path in sorted(sources.glob("*/*.c")):
        name = str(path.relative_to(sources))
        found = next((each for each in folders if (each / f"{name}.o").is_file()), folders[0]) / f"{name}.o"
        if not found.is_file():
            raise FileNotFoundError(f"{found} is missing: run `make warnings` first")
        tables[name] = _symbols(found)
    homes = {symbol: name for name, (defined, _) in tables.items() for symbol in defined}
    for name, (_, undefined) in tables.items():
        yield from (Use(name, homes[each], f"uses {each} of") for each in sorted(undefined & homes.keys()))


def complaints(order: dict[str, int], uses: Iterator[Use]) -> Iterator[str]:
    """Yield a sentence for each use that does not go to a lower layer, and for each folder without a layer."""
    for use in uses:
        user, used = use.user.split("/")[0], use.used.split("/")[0]
        unknown = [folder for folder in (user, used) if folder not in order]
        if unknown:
            yield f"hook/src/{unknown[0]} has no layer: give it a line in hook/src/layers.txt"
        elif user != used and order[used] <= order[user]:
            where = "above" if order[used] < order[user] else "beside"
            yield f"hook/src/{use.user} {use.how} {use.used}: {used}/ lies {where} {user}/ (hook/src/layers.txt)"


def main(arguments: list[str] | None = None) -> int:
    """Check the hook's sources and the objects of a build; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=Path, help="the folder of a CMake build of the hook")
    parser.add_argument("--sources", type=Path, default=SOURCES)
    options = parser.parse_args(arguments)
    order = layers(options.sources / "layers.txt")
    # The library of `orion bench` is compiled from all sources; the released one from all except the baselines.
    folders = [options.build / "CMakeFiles" / f"{library}_objects.dir" / "src" for library in ("hook", "hook_bench")]
    found = list(dict.fromkeys(complaints(order, includes(options.sources))))
    found += list(dict.fromkeys(complaints(order, calls(folders, options.sources))))
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
