"""The image's bases on a machine without a registry: Debian with Python, and the same with pip for the build.

mmdebstrap makes the bases with only what Python needs: without apt, without perl except Debian's essential perl-base,
without manuals and translations. Copyright files and dpkg's records stay. debootstrap was rejected: it omits security
updates, includes apt, and each of its runs gives different bytes.

A base has the packages that debian.lock names, and is the same file whenever and wherever it is made. If Debian no
longer has these packages, the base drifts: it has the versions of the day on which it was made here.
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
from testbed.errors import Failed
from tools.image import debian, locks
from tools.image.debian import SUITE, Pins
from tools.image.programs import Programs, folder

# libstdc++6: CMake needs it in the build, and so do users who add a wheel in C++.
PACKAGES = ("python3", "libstdc++6")
_LEFT_OUT = ("/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*", "/usr/share/doc/*")
_KEPT = "/usr/share/doc/*/copyright"
_OPTIONS = (
    "--variant=essential",
    f"--include={','.join(PACKAGES)}",
    *(f"--dpkgopt=path-exclude={path}" for path in _LEFT_OUT),
    f"--dpkgopt=path-include={_KEPT}",
    # Otherwise apt gives its folders to its unprivileged user, if that user can reach them.
    '--aptopt=APT::Sandbox::User "root"',
    # A container gets devices, host name and resolver from its runtime. The tree would have the build machine's.
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
        drift: how it differs from debian.lock; an empty text if it does not.
    """

    archive: Path
    drift: str = ""

    @property
    def state(self) -> str:
        """A short identifier of its contents."""
        return self.archive.stem


def existing(strict: bool) -> Base | None:
    """Return the base of debian.lock if it has been made here, else None.

    If `strict` is not set, return a base that has drifted before None.
    """
    if _base_path().exists():
        return Base(_base_path())
    drifted = _base_path(drifted=True)
    return Base(drifted, drifted.with_suffix(".txt").read_text()) if drifted.exists() and not strict else None


def get_or_make(programs: Programs, strict: bool, say: Say) -> Base:
    """Return the base of debian.lock; make it if it does not exist.

    Args:
        programs: to make the base.
        strict: accept only the locked packages. Else, if Debian no longer has them, use its current packages.
        say: called with each line of progress.

    Raises:
        Failed: the base cannot be made.
    """
    found = existing(strict)
    if found:
        return found
    lock = debian.Lock.read(debian.LOCK.read_text())
    pins = lock.pins[debian.architecture()]
    say(f"making a base of Debian {SUITE} with {', '.join(PACKAGES)} (half a minute)")
    with made(programs, ()) as (today, packages):
        if packages == pins:
            return _keep(today)
        drift = "; ".join(debian.differences(pins, packages))
        say(f"Debian's packages no longer match {debian.LOCK.name}: {drift}")
        if past := _from_snapshot(programs, lock, say):
            return past
        if strict:
            raise Failed(
                f"no base matches the lock: {drift}; renew the lock with `make image-locks`, or use --allow-drift"
            )
        say("images here use Debian's current packages, and are labelled so, until `make image-locks` renews the lock")
        return _keep(today, drift)


def _from_snapshot(programs: Programs, lock: debian.Lock, say: Say) -> Base | None:
    """Return the base made from the snapshot archive at the moment of the lock, or None if that fails."""
    try:
        with made(programs, lock.mirrors()) as (past, packages):
            if packages == lock.pins[debian.architecture()]:
                return _keep(past)
            say("the snapshot archive gives other packages, too")
    except Failed as failed:
        say(f"the snapshot archive cannot be used: {failed}")
    return None


def _keep(archive: Path, drift: str = "") -> Base:
    kept = Base(_base_path(bool(drift)), drift)
    if drift:
        kept.archive.with_suffix(".txt").write_text(drift)
    archive.rename(kept.archive)
    return kept


def _base_path(drifted: bool = False) -> Path:
    """Return the path of the base's archive for this lock and recipe, or of the drifted one."""
    state = sha256((RECIPE + debian.LOCK.read_text()).encode()).hexdigest()[:12]
    return folder() / "bases" / f"{state}{'-drifted' * drifted}.tar"


@contextmanager
def made(programs: Programs, mirrors: Sequence[str]) -> Iterator[tuple[Path, Pins]]:
    """Make a base from some mirrors (default: today's) and yield it with its packages; delete it at the end.

    Raises:
        Failed: the base cannot be made.
    """
    scratch = folder() / "bases" / f"new-{sha256(' '.join(mirrors).encode()).hexdigest()[:8]}"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    records = (
        f'--customize-hook=cp "$1/var/lib/dpkg/status" "$1"/var/lib/apt/lists/*_Packages {shlex.quote(str(scratch))}'
    )
    archive = scratch / "base.tar"
    try:
        # This hook replaces /bin and others by links to /usr. Otherwise a package does this, and it needs all of perl.
        merged = f"--hook-dir={programs.hooks('merged-usr')}"
        programs.mmdebstrap(*_OPTIONS, records, merged, SUITE, archive, *mirrors)
        yield archive, debian.installed((scratch / "status").read_text(), scratch.glob("*_Packages"))
    finally:
        shutil.rmtree(scratch)


def lock(programs: Programs, say: Say) -> str:
    """Return a lock of Debian's current packages.

    Raises:
        Failed: Debian's packages cannot be reached.
    """
    say("asking Debian for its current packages (a minute)")
    with made(programs, ()) as (_, packages):
        return str(debian.make(programs, packages))


def runtime(programs: Programs, base: Base) -> str:
    """Store the base as an image in buildah's storage, unless the storage has it; return the image's name."""
    name = f"localhost/orion-runtime:{base.state}-{sha256(base.drift.encode()).hexdigest()[:8]}"
    if not programs.has(name):
        _commit(programs, "scratch", base.archive, name)
    base.archive.touch()  # marks it as recently used
    return name


def builder(programs: Programs, base: Base, say: Say) -> str:
    """Store the base with the locked version of pip as an image, unless the storage has it; return the image's name.

    Raises:
        Failed: the image cannot be made.
    """
    pip = locks.only("pip", locks.BUILD.read_text())
    above = runtime(programs, base)
    name = f"localhost/orion-builder:{sha256((above + pip).encode()).hexdigest()[:12]}"
    if programs.has(name):
        return name
    say("adding pip to the base, for the build")
    tree = folder() / "temporary" / "pip"
    shutil.rmtree(tree, ignore_errors=True)
    requirements = tree / "pip.txt"
    packages = tree / "tree/usr/lib/python3/dist-packages"
    packages.mkdir(parents=True)
    requirements.write_text(pip)
    options = ("--quiet", "--require-hashes", "--no-deps", "--no-compile", "--target", packages)
    programs.run([sys.executable, "-m", "pip", "install", *options, "--requirement", requirements])
    _commit(programs, above, tree / "tree", name)
    shutil.rmtree(tree)
    return name


def _commit(programs: Programs, above: str, content: Path, name: str) -> None:
    with programs.container(above) as container:
        programs.buildah("add", container, content, "/")
        programs.buildah("commit", "--quiet", "--timestamp", "0", container, name)
