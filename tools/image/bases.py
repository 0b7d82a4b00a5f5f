"""The bases of the image where there is no registry: Debian with Python, and the same with pip to build on.

Made by mmdebstrap with what Python needs and nothing else: no apt, no perl beyond the essential one, no manuals and
translations; copyright files stay, as do dpkg's records of what is installed. debootstrap was refused: it leaves
security updates out, brings apt, and gives other bytes every time.

A base is as old as the day it was made; `python -m tools.image build --fresh-base` makes it anew.
"""

import shutil
import sys
from pathlib import Path

from tools.cluster.binaries import Say
from tools.image import locks
from tools.image.programs import Programs, folder

SUITE = "bookworm"
# libstdc++6: the build's CMake wants it, and so does whoever adds a wheel in C++.
PACKAGES = ("python3", "libstdc++6")
_LEFT_OUT = ("/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*", "/usr/share/doc/*")
_KEPT = "/usr/share/doc/*/copyright"
_OPTIONS = (
    "--variant=essential",
    f"--include={','.join(PACKAGES)}",
    *(f"--dpkgopt=path-exclude={path}" for path in _LEFT_OUT),
    f"--dpkgopt=path-include={_KEPT}",
    # A runtime gives a container its devices, name and resolver; these would be those of the machine that builds.
    "--skip=output/dev",
    '--customize-hook=rm -f "$1/etc/resolv.conf" "$1/etc/hostname" "$1"/var/cache/debconf/*-old',
)
RECIPE = " ".join((SUITE, *_OPTIONS))


def runtime(programs: Programs, name: str, say: Say, fresh: bool = False) -> None:
    """Have an image `name` of Debian with Python in the storage; the archive of its files is kept.

    Raises:
        Failed: it cannot be made.
    """
    archive = folder() / "bases" / f"{name.replace('/', '-').replace(':', '-')}.tar"
    if fresh or not archive.exists():
        say(f"making a base of Debian {SUITE} with {', '.join(PACKAGES)} (half a minute)")
        archive.parent.mkdir(parents=True, exist_ok=True)
        made = archive.with_suffix(".new.tar")
        # It merges /usr by links from the beginning; else a package does, and brings all of perl for that.
        programs.mmdebstrap(*_OPTIONS, f"--hook-dir={programs.hooks('merged-usr')}", SUITE, made)
        made.rename(archive)
    _commit(programs, "scratch", archive, name)


def builder(programs: Programs, name: str, above: str, say: Say) -> None:
    """Have an image `name` in the storage: the image `above` with the pip that builds are locked to.

    Raises:
        Failed: it cannot be made.
    """
    say("adding pip to it, for the build")
    tree = folder() / "temporary" / "pip"
    shutil.rmtree(tree, ignore_errors=True)
    requirements = tree / "pip.txt"
    place = tree / "tree/usr/lib/python3/dist-packages"
    place.mkdir(parents=True)
    requirements.write_text(locks.only("pip", locks.BUILD.read_text()))
    options = ("--quiet", "--require-hashes", "--no-deps", "--no-compile", "--target", place)
    programs.run([sys.executable, "-m", "pip", "install", *options, "--requirement", requirements])
    _commit(programs, above, tree / "tree", name)
    shutil.rmtree(tree)


def _commit(programs: Programs, above: str, content: Path, name: str) -> None:
    with programs.container(above) as container:
        programs.buildah("add", container, content, "/")
        programs.buildah("commit", "--quiet", "--timestamp", "0", container, name)
