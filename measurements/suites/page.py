"""Makes the tables of docs/compatibility.md of raw data: `python -m measurements.suites.page RAW... [--write PAGE]`.

With --write, the tables replace what is between the page's two comments. The exit status is 1 if a test ended
differently by role and REASONS does not say why, or if no process of a role joined the agent.
"""

import argparse
import fnmatch
import sys
from pathlib import Path
from typing import Any

from measurements.suites.catalogue import SUITES
from measurements.suites.outcomes import WORDS, Comparison
from measurements.suites.reasons import REASONS
from orion.bench import raw_data
from orion.bench.commandline import OneSentenceParser

BEGIN = "<!-- The tables are made by measurements.suites.page: do not edit them. -->"
END = "<!-- End of the tables. -->"
ROLE_NAMES = {"none": "without the hook", "hp": "as hp", "be": "as be"}


def main(arguments: list[str] | None = None) -> int:
    """Run the command."""
    parser = OneSentenceParser(
        prog="python -m measurements.suites.page",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("raw", nargs="+", type=Path, help="raw data of measurements.suites")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="replace the tables of this page")
    options = parser.parse_args(arguments)
    try:
        files = {path: raw_data.read(path) for path in options.raw}
        text = tables(files)
        if options.write:
            options.write.write_text(replaced(options.write.read_text(), text))
        else:
            print(text)
    except (OSError, ValueError, KeyError) as error:
        print(f"measurements.suites.page: {error}", file=sys.stderr)
        return 2
    missing = [test for record in files.values() for test in unexplained(record)]
    for test in missing:
        print(f"measurements.suites.page: {test} ended differently by role; say why in REASONS", file=sys.stderr)
    unmanaged = [path for path, record in files.items() if not all(record["joined"].values())]
    for path in unmanaged:
        print(f"measurements.suites.page: {path}: no process joined the agent in one of the roles", file=sys.stderr)
    return 1 if missing or unmanaged else 0


def replaced(page: str, text: str) -> str:
    """Return the page with other tables.

    Raises:
        ValueError: The page lacks one of the comments that enclose the tables.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no place for the tables: {BEGIN} ... {END}")
    return f"{before}{BEGIN}\n\n{text.strip()}\n\n{END}{after}"


def tables(files: dict[Path, dict[str, Any]]) -> str:
    """Return the tables of several files of raw data."""
    compared = {path: Comparison(record) for path, record in files.items()}
    lines = [*_summary(compared), "", *_roles(compared)]
    different = {path: each for path, each in compared.items() if each.different}
    unsteady = {path: each for path, each in compared.items() if each.unsteady}
    lines += ["", "### Tests that ended differently by role", ""]
    lines += _differing(different) if different else ["None."]
    if unsteady:
        lines += ["", "### Tests that ended differently once", ""]
        lines += ["These ended alike in all roles when they ran once more, so the role is not the cause.", ""]
        lines += _unsteady(unsteady)
    return "\n".join(lines)


def unexplained(record: dict[str, Any]) -> list[str]:
    """Return the tests that ended differently by role without a reason."""
    return [test for test in Comparison(record).different if not reason(record["suite"], test)]


def reason(suite: str, test: str) -> str:
    """Return why the test ends differently by role, or ""."""
    found = [why for pattern, why in REASONS.get(suite, {}).items() if fnmatch.fnmatchcase(test, pattern)]
    return found[0] if found else ""


def _summary(compared: dict[Path, Comparison]) -> list[str]:
    lines = ["| suite | tests of | ran with | driver, GPU | tests that ended in all three roles | differ by role |"]
    lines += ["|---|---|---|---|---|---|"]
    for path, each in compared.items():
        record = each.record
        packages = ", ".join(f"{name} {version}" for name, version in record["packages"].items())
        count = f"{len(each.compared)} ([raw data](results/raw/{path.name}))"
        cells = [SUITES[record["suite"]].title, record["tests"], packages, _machine(record), count]
        lines.append(f"| {' | '.join([*cells, str(len(each.different))])} |")
    return lines


def _roles(compared: dict[Path, Comparison]) -> list[str]:
    words = ["passed", "skipped", "failed", "error", "xfailed", "crashed", "timed out"]
    found = {letter for each in compared.values() for letters in each.compared.values() for letter in letters}
    shown = [letter for word in words for letter, name in WORDS.items() if name == word and letter in found]
    lines = [f"| suite | role | {' | '.join(WORDS[letter] for letter in shown)} |", "|---|---|" + "---|" * len(shown)]
    for each in compared.values():
        for place, role in enumerate(each.record["roles"]):
            ended = [letters[place] for letters in each.compared.values()]
            counts = " | ".join(str(ended.count(letter)) for letter in shown)
            lines.append(f"| {SUITES[each.record['suite']].title} | {ROLE_NAMES[role]} | {counts} |")
    return lines


def _differing(compared: dict[Path, Comparison]) -> list[str]:
    lines = ["| suite | test | without the hook | as hp | as be | why |", "|---|---|---|---|---|---|"]
    for each in compared.values():
        suite = each.record["suite"]
        for test in each.different:
            ended = " | ".join(WORDS[letter] for letter in each.again.get(test, each.outcomes[test]))
            lines.append(f"| {suite} | `{_cell(test)}` | {ended} | {reason(suite, test) or '**not known**'} |")
    return lines


def _unsteady(compared: dict[Path, Comparison]) -> list[str]:
    lines = [
        "| suite | test | without the hook | as hp | as be | in all roles, once more |",
        "|---|---|---|---|---|---|",
    ]
    for each in compared.values():
        for test in each.unsteady:
            ended = " | ".join(WORDS[letter] for letter in each.outcomes[test])
            lines.append(f"| {each.record['suite']} | `{_cell(test)}` | {ended} | {WORDS[each.again[test][0]]} |")
    return lines


def _machine(record: dict[str, Any]) -> str:
    parts = [part.strip() for part in record["machine"].splitlines()[0].split(",")]
    cuda = f"CUDA {record['cuda'] // 1000}.{record['cuda'] % 1000 // 10}"
    return f"{parts[1]} ({cuda}), {parts[0]}" if len(parts) > 1 else f"{parts[0]} ({cuda})"


def _cell(test: str) -> str:
    return test.replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main())
