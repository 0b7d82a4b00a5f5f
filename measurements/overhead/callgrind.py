"""Parses the profile of valgrind's callgrind: instructions by shared object.

Only one function and its callees are counted, because callgrind's own summary includes the start of the client.
"""

from collections import Counter
from pathlib import Path


def command(out: Path, function: str) -> list[str]:
    """Return the command prefix under which a program's function is counted, with output to a file."""
    return [
        "valgrind",
        "--quiet",
        "--tool=callgrind",
        "--collect-atstart=no",
        f"--toggle-collect={function}",
        f"--callgrind-out-file={out}",
        "--compress-strings=no",
        "--compress-pos=no",
    ]


def instructions_by_object(text: str) -> Counter[str]:
    """Sum the self cost of all lines.

    Args:
        text: A callgrind profile written with the options of `command`: one event, no compressed names.

    Returns:
        Instructions by the path of the object that contains them; "???" if callgrind did not know the object.
    """
    counts: Counter[str] = Counter()
    current = "???"
    inclusive = False  # the line after `calls=` is the callee's cost, which the callee's own lines count
    for line in text.splitlines():
        if line.startswith("ob="):
            current = line[3:]
        elif line.startswith("calls="):
            inclusive = True
        elif line[:1].isdigit():
            if not inclusive:
                counts[current] += int(line.split()[1])
            inclusive = False
    return counts
