"""Checks that no text of the project uses a word that docs/writing.md asks to avoid. Run by `make check`.

The table of that page is the only list: a row that is added there is enforced. A name in code is split at underscores
and capitals. Licences, data files and generated interface stubs are not checked.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = "docs/writing.md"
HEADING = "## Words to avoid"
NOT_OURS = re.compile(r"(^|/)LICENSE$|_pb2(_grpc)?\.pyi?$|\.(gz|json|lock|png|svg|sum|map)$")


def words(page: str) -> list[str]:
    """Return the words in the first column of the page's table."""
    rows = [line for line in page.split(HEADING)[1].splitlines() if line.startswith("| ")]
    return [word.strip() for row in rows[1:] for word in row.split("|")[1].split(",")]


def pattern(avoided: list[str]) -> re.Pattern[str]:
    """Return a pattern that finds each of the words, alone or as a part of a name."""
    longest_first = "|".join(sorted((re.escape(word) for word in avoided), key=len, reverse=True))
    any_case = "".join(f"[{c.lower()}{c.upper()}]" if c.isalpha() else c for c in longest_first)
    # A match begins after a non-letter, or with a capital after a small letter (camelCase). No small letter follows it.
    return re.compile(rf"(?:(?<![a-zA-Z])|(?<=[a-z])(?=[A-Z]))(?:{any_case})(?![a-z])")


def found(files: list[str], avoided: re.Pattern[str]) -> Iterator[str]:
    """Yield a sentence for each use of a word."""
    for file in files:
        try:
            text = (ROOT / file).read_text(encoding="utf-8")
        except (UnicodeDecodeError, FileNotFoundError):  # not a text; deleted, but not committed yet
            continue
        for number, line in enumerate(text.splitlines(), 1):
            for match in avoided.finditer(line):
                yield f"{file}:{number}: replace {match[0]!r} by the word that {PAGE} lists for it"


def main() -> int:
    """Check every file of the project; print the words that were found."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    files = [file for file in listed if file and file != PAGE and not NOT_OURS.search(file)]
    complaints = list(found(files, pattern(words((ROOT / PAGE).read_text()))))
    print("\n".join(complaints), file=sys.stderr, end="\n" if complaints else "")
    if not complaints:
        print(f"words: {len(files)} files")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
