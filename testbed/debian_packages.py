"""Brings programs of the distribution without installing them: packages, downloaded and unpacked into a folder.

A machine stays as it is, and a folder that is removed takes everything with it. For what else a package does when it is
installed (links, users, services) there is no replacement here: whoever unpacks one knows what it needs.
"""

import shutil
import subprocess
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

from testbed.binaries import Say, Unavailable, one_at_a_time


def unpacked(packages: Sequence[str], folder: Path) -> Path:
    """Return where these packages lie below `folder` once they have been unpacked."""
    return folder / f"root-{zlib.crc32(' '.join(packages).encode()):08x}"


def is_possible() -> bool:
    """Return whether this is a machine of that kind."""
    return all(map(shutil.which, ("apt-get", "dpkg-deb")))


def unpack(
    packages: Sequence[str], folder: Path, say: Say, what: str, finish: Callable[[Path], None] = lambda root: None
) -> Path:
    """Download and unpack packages, once; return the folder that is their root.

    Args:
        packages: by name.
        folder: in which they are unpacked.
        say: hears what goes on.
        what: they are, in words.
        finish: does to the fresh root what installation would have done.

    Raises:
        Unavailable: there is no apt-get here, or no way to the packages.
    """
    root = unpacked(packages, folder)
    if root.exists():
        return root
    with one_at_a_time(folder, say, f"bringing {what}"):
        if not root.exists():
            say(f"downloading {len(packages)} packages of the distribution into {folder} (nothing is installed)")
            _bring(packages, folder, root, what, finish)
    return root


def _bring(packages: Sequence[str], folder: Path, root: Path, what: str, finish: Callable[[Path], None]) -> None:
    if not is_possible():
        raise Unavailable(f"there is no apt-get here to bring {', '.join(packages)}")
    archives, fresh = folder / "archives", folder / "fresh"
    for leftover in (archives, fresh):
        shutil.rmtree(leftover, ignore_errors=True)
        leftover.mkdir()
    _download(packages, archives, what)
    for archive in sorted(archives.glob("*.deb")):
        _run(["dpkg-deb", "-x", str(archive), str(fresh)], archives, what)
    finish(fresh)
    fresh.rename(root)
    shutil.rmtree(archives)


def _download(packages: Sequence[str], archives: Path, what: str) -> None:
    """Download the packages; where apt has no lists of what there is, with lists of our own."""
    try:
        _run(["apt-get", "download", *packages], archives, what)
    except Unavailable:
        (archives / "lists" / "partial").mkdir(parents=True)
        own = ["-o", f"Dir::State::Lists={archives / 'lists'}", "-o", f"Dir::Cache={archives / 'cache'}"]
        _run(["apt-get", *own, "update"], archives, what)
        _run(["apt-get", *own, "download", *packages], archives, what)


def _run(command: list[str], place: Path, what: str) -> None:
    done = subprocess.run(command, cwd=place, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise Unavailable(f"{' '.join(command[:2])} could not bring {what}: {last}")
