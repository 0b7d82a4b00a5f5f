"""Writes the definitions of all kinds as YAML where the chart ships them, or checks that they are what the models say.

    python -m orion.crds.generate [--check]

Run by `make crds` and, with --check, by `make check`.
"""

import argparse
import sys
from pathlib import Path

import yaml

from orion.crds import device, profile, share
from orion.crds.definition import definition

KINDS = (share.KIND, device.KIND, profile.KIND)
""" Every kind of the API; a new one joins here. """

FOLDER = Path(__file__).resolve().parent.parent / "charts" / "orion" / "files" / "crds"
""" In a checkout; an installed package has no chart beside it. """

_HEAD = "# Made from the models in crds/ by `make crds`; a change belongs there.\n"


class _Dumper(yaml.SafeDumper):
    """YAML without anchors, since people read it and not every tool of Kubernetes takes them."""

    def ignore_aliases(self, data: object) -> bool:
        """Write everything in full."""
        return True


def files() -> dict[str, str]:
    """Return the text of each file by its name."""
    return {
        f"{kind.plural}.yaml": _HEAD
        + yaml.dump(definition(kind), Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)
        for kind in KINDS
    }


def main() -> int:
    """Write the files, or with --check say which of them are out of date."""
    parser = argparse.ArgumentParser(prog="python -m orion.crds.generate", description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is out of date")
    check = parser.parse_args().check
    fresh = files()
    there = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.yaml")}
    stale = sorted(name for name in fresh.keys() | there.keys() if fresh.get(name) != there.get(name))
    if check and stale:
        print(f"out of date: {', '.join(stale)}; run `make crds`", file=sys.stderr)
        return 1
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in stale:
        if name in fresh:
            (FOLDER / name).write_text(fresh[name], encoding="utf-8")
        else:
            (FOLDER / name).unlink()
    print(f"API definitions: {'current' if not stale else 'made ' + ', '.join(stale)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
