"""Reads what valgrind's callgrind counted: instructions by shared object.

Only inside one function and what it calls: callgrind's own summary would count the client's start as well.
"""

from collections import Counter
from pathlib import Path


def command(out: Path, function: str) -> list[str]:
    """Return the words before a program's own that count inside a function, into a file."""
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
        Instructions by the path of the object that holds them; "???" where callgrind did not know.
    """
    counts: Counter[str] = Counter()
    current = "???"
    inclusive = False  # the line after `calls=` is the callee's cost, counted at the callee
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
