"""The bases of the image where there is no registry: Debian with Python, and the same with pip to build on.

Made by mmdebstrap with what Python needs and nothing else: no apt, no perl beyond the essential one, no manuals and
translations; copyright files stay, as do dpkg's records of what is installed. debootstrap was refused: it leaves
security updates out, brings apt, and gives other bytes every time.

A base holds the packages that debian.lock names, and is the same file whenever and wherever it is made. Where Debian
does not have them any more it has drifted: then it is as old as the day it was made here.
"""

import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from testbed.binaries import Say
from tools.image import debian, locks
from tools.image.debian import SUITE, Pins
from tools.image.programs import Failed, Programs, folder

# libstdc++6: the build's CMake wants it, and so does whoever adds a wheel in C++.
PACKAGES = ("python3", "libstdc++6")
_LEFT_OUT = ("/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*", "/usr/share/doc/*")
_KEPT = "/usr/share/doc/*/copyright"
_OPTIONS = (
    "--variant=essential",
    f"--include={','.join(PACKAGES)}",
    *(f"--dpkgopt=path-exclude={path}" for path in _LEFT_OUT),
    f"--dpkgopt=path-include={_KEPT}",
    # Else apt's folders belong to another user where the one that it drops its rights to can reach them.
    '--aptopt=APT::Sandbox::User "root"',
    # A runtime gives a container its devices, name and resolver; these would be those of the machine that builds.
    "--skip=output/dev",
    '--customize-hook=rm -f "$1/etc/resolv.conf" "$1/etc/hostname" "$1/etc/apt/sources.list"',
    '--customize-hook=rm -f "$1"/var/cache/debconf/*-old',
)
RECIPE = " ".join((SUITE, *_OPTIONS))


@dataclass(frozen=True)
class Base:
    """A base that has been made, as an archive of its files.

    Args:
        archive: of the files.
        drift: what in it is not as debian.lock says; an empty text if nothing.
    """

    archive: Path
    drift: str = ""

    @property
    def state(self) -> str:
        """A short name of what is in it."""
        return self.archive.stem


def there(strict: bool) -> Base | None:
    """Return the base that debian.lock names, if it has been made here; one that has drifted unless `strict`."""
    if _place().exists():
        return Base(_place())
    drifted = _place(drifted=True)
    return Base(drifted, drifted.with_suffix(".txt").read_text()) if drifted.exists() and not strict else None


def have(programs: Programs, strict: bool, say: Say) -> Base:
    """Return the base that debian.lock names, made if it is not there.

    Args:
        programs: to make it with.
        strict: insist on the lock; else a base of today's packages will do where Debian has no others any more.
        say: hears what goes on.

    Raises:
        Failed: it cannot be made.
    """
    found = there(strict)
    if found:
        return found
    lock = debian.Lock.read(debian.LOCK.read_text())
    pins = lock.pins[debian.architecture()]
    say(f"making a base of Debian {SUITE} with {', '.join(PACKAGES)} (half a minute)")
    with made(programs, ()) as (today, packages):
        if packages == pins:
            return _keep(today)
        drift = "; ".join(debian.differences(pins, packages))
        say(f"Debian's packages are not those of {debian.LOCK.name} any more: {drift}")
        if past := _of_the_past(programs, lock, say):
            return past
        if strict:
            raise Failed(
                f"no base as it is locked: {drift}; `make image-locks` renews the lock, --allow-drift does without"
            )
        say("until `make image-locks` renews the lock, images are built here of what Debian has today, and say so")
        return _keep(today, drift)


def _of_the_past(programs: Programs, lock: debian.Lock, say: Say) -> Base | None:
    """Return the base, made of what the archive of Debian's past had at the moment of the lock, if that can be."""
    try:
        with made(programs, lock.mirrors()) as (past, packages):
            if packages == lock.pins[debian.architecture()]:
                return _keep(past)
            say("the archive of Debian's past has others as well")
    except Failed as failed:
        say(f"the archive of Debian's past cannot be used: {failed}")
    return None


def _keep(archive: Path, drift: str = "") -> Base:
    kept = Base(_place(bool(drift)), drift)
    if drift:
        kept.archive.with_suffix(".txt").write_text(drift)
    archive.rename(kept.archive)
    return kept


def _place(drifted: bool = False) -> Path:
    """Return where the archive of the base is that this lock and this recipe give, or of one that has drifted."""
    state = sha256((RECIPE + debian.LOCK.read_text()).encode()).hexdigest()[:12]
    return folder() / "bases" / f"{state}{'-drifted' * drifted}.tar"


@contextmanager
def made(programs: Programs, mirrors: Sequence[str]) -> Iterator[tuple[Path, Pins]]:
    """Have a base of what some mirrors have (today's, if none), and what it is made of; it is gone after that.

    Raises:
        Failed: it cannot be made.
    """
    place = folder() / "bases" / f"new-{sha256(' '.join(mirrors).encode()).hexdigest()[:8]}"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    records = (
        f'--customize-hook=cp "$1/var/lib/dpkg/status" "$1"/var/lib/apt/lists/*_Packages {shlex.quote(str(place))}'
    )
    archive = place / "base.tar"
    try:
        # It merges /usr by links from the beginning; else a package does, and brings all of perl for that.
        merged = f"--hook-dir={programs.hooks('merged-usr')}"
        programs.mmdebstrap(*_OPTIONS, records, merged, SUITE, archive, *mirrors)
        yield archive, debian.installed((place / "status").read_text(), place.glob("*_Packages"))
    finally:
        shutil.rmtree(place)


def lock(programs: Programs, say: Say) -> str:
    """Return a lock of what Debian has today.

    Raises:
        Failed: there is no way to Debian's packages.
    """
    say("asking Debian for its packages of today (a minute)")
    with made(programs, ()) as (_, packages):
        return str(debian.make(programs, packages))


def runtime(programs: Programs, base: Base) -> str:
    """Have a base as an image in the storage; return its name."""
    name = f"localhost/orion-runtime:{base.state}-{sha256(base.drift.encode()).hexdigest()[:8]}"
    if not programs.has(name):
        _commit(programs, "scratch", base.archive, name)
    base.archive.touch()  # used last
    return name


def builder(programs: Programs, base: Base, say: Say) -> str:
    """Have a base with the pip that builds are locked to as an image in the storage; return its name.

    Raises:
        Failed: it cannot be made.
    """
    pip = locks.only("pip", locks.BUILD.read_text())
    above = runtime(programs, base)
    name = f"localhost/orion-builder:{sha256((above + pip).encode()).hexdigest()[:12]}"
    if programs.has(name):
        return name
    say("adding pip to it, for the build")
    tree = folder() / "temporary" / "pip"
    shutil.rmtree(tree, ignore_errors=True)
    requirements = tree / "pip.txt"
    place = tree / "tree/usr/lib/python3/dist-packages"
    place.mkdir(parents=True)
    requirements.write_text(pip)
    options = ("--quiet", "--require-hashes", "--no-deps", "--no-compile", "--target", place)
    programs.run([sys.executable, "-m", "pip", "install", *options, "--requirement", requirements])
    _commit(programs, above, tree / "tree", name)
    shutil.rmtree(tree)
    return name


def _commit(programs: Programs, above: str, content: Path, name: str) -> None:
    with programs.container(above) as container:
        programs.buildah("add", container, content, "/")
        programs.buildah("commit", "--quiet", "--timestamp", "0", container, name)
