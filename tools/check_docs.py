"""Checks the documentation against the code: links, commands, names, YAML. Run by `make check`.

    python -m tools.check_docs [PAGE...]

It runs no program of the pages and needs no network, so it takes seconds. tools/docs describes the checks.
"""

import argparse
import sys
from pathlib import Path

from tools.docs import commands, links, manifests, names, pages, tables


def main() -> int:
    """Check all pages; print the findings in the named pages, or in all."""
    parser = argparse.ArgumentParser(prog="python -m tools.check_docs", description=__doc__.partition("\n")[0])
    parser.add_argument("page", nargs="*", type=Path, help="print findings in these pages only")
    wanted = {path.resolve() for path in parser.parse_args().page}
    all_pages = pages.all_pages()
    command_faults, command_count = commands.check(all_pages)
    manifest_faults, manifest_count = manifests.check(all_pages)
    found = links.check(all_pages) + command_faults + manifest_faults + names.check(all_pages) + tables.check(all_pages)
    found = [each for each in found if not wanted or (pages.ROOT / each.page).resolve() in wanted]
    for finding in sorted(set(found)):
        print(finding, file=sys.stderr)
    if not found:
        link_count = sum(len(page.links) for page in all_pages)
        reported = f"{link_count} links, {command_count} commands, {manifest_count} YAML documents"
        print(f"docs: {len(all_pages)} pages, {reported}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
