"""Downloads packages of the distribution and unpacks them into a folder, without installing them.

The machine does not change, and removing the folder removes everything. The other steps of an installation (links,
users, services) are not done here: a caller that needs them passes `finish`.
"""

import shutil
import subprocess
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

from testbed.binaries import Say, one_at_a_time
from testbed.errors import Missing


def unpacked(packages: Sequence[str], folder: Path) -> Path:
    """Return the folder below `folder` in which these packages are unpacked."""
    return folder / f"root-{zlib.crc32(' '.join(packages).encode()):08x}"


def is_possible() -> bool:
    """Return whether this machine has Debian's package tools."""
    return all(map(shutil.which, ("apt-get", "dpkg-deb")))


def unpack(
    packages: Sequence[str], folder: Path, say: Say, what: str, finish: Callable[[Path], None] = lambda root: None
) -> Path:
    """Download and unpack packages, unless that was done before; return their root folder.

    Args:
        packages: by name.
        folder: in which they are unpacked.
        say: called with each line of progress.
        what: a noun for the packages, for messages.
        finish: does in the new root the other steps of the installation that the caller needs.

    Raises:
        Missing: this machine has no apt-get, or the packages cannot be downloaded.
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
        raise Missing(f"there is no apt-get here to download {', '.join(packages)}")
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
    """Download the packages. If apt has no package lists, download lists into our own folder first."""
    try:
        _run(["apt-get", "download", *packages], archives, what)
    except Missing:
        (archives / "lists" / "partial").mkdir(parents=True)
        own = ["-o", f"Dir::State::Lists={archives / 'lists'}", "-o", f"Dir::Cache={archives / 'cache'}"]
        _run(["apt-get", *own, "update"], archives, what)
        _run(["apt-get", *own, "download", *packages], archives, what)


def _run(command: list[str], folder: Path, what: str) -> None:
    done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise Missing(f"{' '.join(command[:2])} could not download {what}: {last}")
