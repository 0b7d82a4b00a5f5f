"""The image's command line: builds the image, lists its software, renews or checks the locks."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from testbed.errors import Failed, Missing
from tools.image import bases, debian, inventory, locks, registry
from tools.image.archive import Archive
from tools.image.editions import NEWER, OLDER, THIS
from tools.image.making import build
from tools.image.programs import Programs

DOCKERFILE = locks.ROOT / "Dockerfile"
EDITIONS = {edition.tag: edition for edition in (THIS, OLDER, NEWER)}


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _build(options: argparse.Namespace) -> int:
    edition = EDITIONS[options.edition]
    print(build(_say, edition, options.name, options.revision, not options.allow_drift))
    return 0


def _inventory(options: argparse.Namespace) -> int:
    software = inventory.write(Archive(build(_say)), options.folder)
    print(f"{len(software)} pieces of software: {options.folder}/sbom.cdx.json, {options.folder}/licences.md")
    return 0


def _lock(options: argparse.Namespace) -> int:
    stayed = [] if options.check else _renew()
    wrong = [f"{lock.name}: {each}" for lock, wanted in locks.wanted().items()
             for each in locks.complaints(wanted, lock.read_text())]  # fmt: skip
    print("\n".join([*stayed, *wrong] or ["locks: fit pyproject.toml"]))
    return bool(stayed or wrong)


def _renew() -> list[str]:
    """Renew every pin that can be renewed from here; return why the others are unchanged."""
    locks.make()
    renewing: dict[Path, Callable[[], str]] = {
        debian.LOCK: lambda: bases.lock(Programs.bring(_say), _say),
        DOCKERFILE: lambda: registry.renew(DOCKERFILE.read_text(), registry.digest),
    }
    stayed = []
    for path, renewed in renewing.items():
        try:
            path.write_text(renewed())
        except (Missing, Failed) as reason:
            stayed.append(f"{path.name} is unchanged: {reason}")
    return stayed


def main() -> int:
    """Parse the command line and run it."""
    parser = argparse.ArgumentParser(prog="python -m tools.image", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    action = actions.add_parser("build", help="build the image if its sources changed, and print the archive's path")
    action.add_argument(
        "--edition",
        choices=sorted(EDITIONS),
        default="dev",
        help="dev: this checkout; others: for tests of upgrades",
    )
    action.add_argument("--name", default="", help="full name with a tag (default: localhost/orion:dev)")
    action.add_argument("--revision", default="", help="revision of the sources, for the image's label")
    action.add_argument(
        "--allow-drift", action="store_true", help="use Debian's current packages if those of debian.lock are gone"
    )
    action.set_defaults(do=_build)
    action = actions.add_parser("inventory", help="list the software in the image and its licences")
    action.add_argument(
        "--folder", type=Path, default=Path("build/image"), help="folder of the lists (default: build/image)"
    )
    action.set_defaults(do=_inventory)
    action = actions.add_parser(
        "lock", help="renew every pin: Python's packages, Debian's, and the base image's digest"
    )
    action.add_argument("--check", action="store_true", help="only check that the locks match pyproject.toml")
    action.set_defaults(do=_lock)
    options = parser.parse_args()
    try:
        return int(options.do(options))
    except (Missing, Failed) as reason:
        print(reason, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
