"""Writes the CustomResourceDefinitions into the chart, or checks that those in the chart match the models.

    python -m orion.crds.generate [--check]

`make crds` runs it; `make check` runs it with --check.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import yaml

from orion.crds import device, profile, share
from orion.crds.kinds import Column, Kind
from orion.crds.model import GROUP, VERSION
from orion.crds.schema import structural

KINDS = (share.KIND, device.KIND, profile.KIND)
""" Every kind of the API; add a new kind here. """

FOLDER = Path(__file__).resolve().parent.parent / "charts" / "orion" / "files" / "crds"
""" It exists in a checkout only; an installed package has no chart beside it. """

_HEAD = "# Generated from the models in crds/ by `make crds`; edit the models instead.\n"


class _Dumper(yaml.SafeDumper):
    """Writes YAML without anchors, because people read it and not every Kubernetes tool accepts anchors."""

    def ignore_aliases(self, data: object) -> bool:
        """Return True: repeat a value instead of referring to an anchor."""
        return True


def definition(kind: Kind) -> dict[str, Any]:
    """Return the CustomResourceDefinition, ready for the API server."""
    version: dict[str, Any] = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": [_column(column) for column in kind.columns],
    }
    if kind.selectable:
        version["selectableFields"] = [{"jsonPath": path} for path in kind.selectable]
    if kind.status:
        version["subresources"] = {"status": {}}
    version["schema"] = {"openAPIV3Schema": structural(kind.model)}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kind.full_name},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": kind.name,
                "listKind": f"{kind.name}List",
                "plural": kind.plural,
                "singular": kind.singular,
                "shortNames": list(kind.short),
                "categories": ["orion"],
            },
            "scope": kind.scope,
            "versions": [version],
        },
    }


def _column(column: Column) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "name": column.name,
        "type": column.type,
        "jsonPath": column.path,
        "description": column.description,
    }
    return plain | ({"priority": 1} if column.wide else {})


def files() -> dict[str, str]:
    """Return the text of each file, by file name."""
    return {
        f"{kind.plural}.yaml": _HEAD
        + yaml.dump(definition(kind), Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)
        for kind in KINDS
    }


def main() -> int:
    """Write the files; with --check, list those that are out of date."""
    parser = argparse.ArgumentParser(prog="python -m orion.crds.generate", description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is out of date")
    check = parser.parse_args().check
    fresh = files()
    present = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.yaml")}
    stale = sorted(name for name in fresh.keys() | present.keys() if fresh.get(name) != present.get(name))
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
