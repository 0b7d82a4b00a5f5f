"""Writes the map of the source, one line a file, into CONTRIBUTING.md, or checks that it is current.

Run by `make generate` and, with --check, by `make check`. A file's line is the first sentence of its docstring or
opening comment, so the map cannot say something else than the file, and a file without such a sentence is an error.
A C file and its header are one line: the header says what both are for.
"""

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
ROOMS = ("hook", "inprocess", "node_agent", "device_plugin", "operator", "api_server", "crds", "cli", "bench", "tools")
SUFFIXES = {".py", ".c", ".h", ".proto", ".map"}
LONGEST = 120
GENERATED = re.compile(r"_pb2(_grpc)?\.pyi?$|/generated/|/generated_")
BEGIN, END = "<!-- map: begin (made by `make generate`) -->", "<!-- map: end -->"


def sources() -> Iterator[Path]:
    """Yield every source file that people write, by room, the tests of C included."""
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*")):
            name = path.relative_to(ROOT).as_posix()
            if path.suffix in SUFFIXES and "__pycache__" not in path.parts and not GENERATED.search(name):
                yield path


def opening(path: Path) -> str:
    """Return the text that a file opens with: its docstring or first comment, without the signs of a comment."""
    text = path.read_text()
    if path.suffix == ".py":
        return ast.get_docstring(ast.parse(text)) or ""
    if path.suffix == ".proto":
        lines = re.match(r"(?://.*\n)+", text)
        return re.sub(r"(?m)^// ?", "", lines[0]) if lines else ""
    comment = re.match(r"\s*/\*(.*?)\*/", text, re.DOTALL)
    return re.sub(r"(?m)^\s*\* ?", "", comment[1]).strip() if comment else ""


def first_sentence(text: str) -> str:
    """Return the first sentence on one line, without its full stop; a long one up to a colon, semicolon or comma."""
    sentence = re.split(r"\.(?:\s|$)", " ".join(text.split("\n\n")[0].split()), maxsplit=1)[0]
    if len(sentence) <= LONGEST:
        return sentence.rstrip(":")
    cut = max(sentence.rfind(sign, 0, LONGEST) for sign in (": ", "; ", ", "))
    return sentence[:cut] if cut > 0 else sentence


def draw() -> str:
    """Return the map.

    Raises:
        SystemExit: a file does not open with a sentence.
    """
    lines, mute = [], []
    found = list(sources())
    for path in found:
        if (heading := f"\n### {path.relative_to(ROOT).parts[0]}\n") not in lines:
            lines.append(heading)
        name, header = path.relative_to(ROOT).as_posix(), path.with_suffix(".h")
        if path.suffix == ".c" and header in found:
            continue  # one line for both
        body = path.with_suffix(".c")
        both = path.suffix == ".h" and body in found
        sentence = first_sentence(opening(path)) or (both and first_sentence(opening(body)))
        if not sentence:
            mute.append(name)
        lines.append(f"- `{name.removesuffix('h') + '[ch]' if both else name}`: {sentence}")
    if mute:
        raise SystemExit(f"no sentence at the top says why these files exist: {', '.join(mute)}")
    return "\n".join(lines).strip()


def main() -> int:
    """Write the map, or with --check say that it is out of date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the map is out of date")
    check = parser.parse_args().check
    text = CONTRIBUTING.read_text()
    head, _, rest = text.partition(BEGIN)
    _, found, tail = rest.partition(END)
    if not found:
        raise SystemExit(f"CONTRIBUTING.md has no place for the map ({BEGIN} ... {END})")
    fresh = f"{head}{BEGIN}\n\n{draw()}\n\n{END}{tail}"
    if check and fresh != text:
        print("the map in CONTRIBUTING.md is out of date; run `make generate`", file=sys.stderr)
        return 1
    if fresh != text:
        CONTRIBUTING.write_text(fresh)
    print("map: current")
    return 0


if __name__ == "__main__":
    sys.exit(main())
