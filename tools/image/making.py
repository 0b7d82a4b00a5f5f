"""Makes the image: has the bases, gives the Dockerfile to buildah, and packs what comes of it into an archive.

Everything is kept by what it was made of, in the cache that all checkouts share: bases by their lock, layers by
buildah, archives by the sources and the name. So the image is built in minutes once, in seconds after a change of
code, and not at all without one.
"""

import configparser
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from testbed.binaries import Say, one_at_a_time
from tools.image import archive, bases, editions, sources
from tools.image.bases import Base
from tools.image.editions import THIS, Edition
from tools.image.programs import Failed, Programs, folder

NAME = "localhost/orion"
FORMAT = "3"  # rises when the same sources are to give another archive
KEPT = 20  # archives, 66 MB each
# The label of an image whose base is not as debian.lock says: what differs.
DRIFT = "gpu.orion.base.drift"
LARGEST_STORAGE = 6 << 30  # bytes, after which layers are made again
_CERTIFICATES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")


def build(
    say: Say = lambda line: None, edition: Edition = THIS, name: str = "", revision: str = "", strict: bool = False
) -> Path:
    """Return the archive of the image, built if it is not there yet.

    Args:
        say: hears what goes on.
        edition: this checkout, or an Orion that is not.
        name: with a tag, in full; `localhost/orion:` and the edition's tag unless told.
        revision: of the sources, for the image's label; a digest of them unless told.
        strict: only on a base that is made as it is locked; else one of Debian's packages of today will do where the
            locked ones are not to be had, and a label says so.

    Raises:
        Unavailable: no image can be built here.
        Failed: buildah could not, the sources do not build, or there is no such base.
    """
    files = edition.of(sources.read())
    dockerfile = (sources.ROOT / "Dockerfile").read_text()
    revision = revision or _state(files, dockerfile)
    own = f"{NAME}:{edition.tag}"

    def place(base: Base) -> Path:
        key = sources.digest(files, dockerfile, FORMAT, base.state, base.drift, own, revision)
        return folder() / "archives" / f"orion-{key[:16]}.tar"

    base = bases.there(strict)
    if base is None or not place(base).exists():
        programs = Programs.bring(say)
        with one_at_a_time(folder() / "archives", say, "building the image"):
            base = bases.have(programs, strict, say)
            if not place(base).exists():
                labels = {"version": editions.version(files), "revision": revision}
                _build(programs, files, dockerfile, own, labels, base, place(base), say)
        _forget_old()
    place(base).touch()
    return _called(name, place(base)) if name and name != own else place(base)


def state(edition: Edition = THIS) -> str:
    """Return the revision that the image's label tells of the sources as they are now."""
    return _state(edition.of(sources.read()), (sources.ROOT / "Dockerfile").read_text())


def _state(files: dict[str, bytes], dockerfile: str) -> str:
    return f"sources-{sources.digest(files, dockerfile, FORMAT)[:16]}"


def _called(name: str, made: Path) -> Path:
    """Return an archive of the same image with another name."""
    renamed = made.with_name(f"{made.stem}-{sha256(name.encode()).hexdigest()[:8]}.tar")
    if not renamed.exists():
        archive.rename(made, name, renamed)
    renamed.touch()
    return renamed


def _build(
    programs: Programs, files: dict[str, bytes], dockerfile: str, name: str, labels: dict[str, str], base: Base,
    made: Path, say: Say,
) -> None:  # fmt: skip
    if _size(folder() / "storage") > LARGEST_STORAGE:
        say("the layers of earlier builds are dropped")
        shutil.rmtree(folder() / "storage")
    labels = {f"org.opencontainers.image.{key}": value for key, value in labels.items()}
    labels |= {DRIFT: base.drift} if base.drift else {}
    with tempfile.TemporaryDirectory(prefix="build-", dir=folder() / "temporary") as temporary:
        place = Path(temporary)
        sources.write(files, place / "context")
        (place / "Dockerfile").write_text(dockerfile)
        say(f"building {name}")
        programs.buildah(
            "bud", "--layers", "--network", "host", "--timestamp", "0", *_secrets(place),
            f"--build-arg=BUILDER={bases.builder(programs, base, say)}",
            f"--build-arg=RUNTIME={bases.runtime(programs, base)}",
            # Not as build arguments: this buildah takes labels made of arguments from its cache, with old values.
            *(f"--label={key}={value}" for key, value in labels.items()),
            "--file", place / "Dockerfile", "--tag", name, place / "context", say=say,
        )  # fmt: skip
        programs.buildah("push", "--disable-compression", "--format", "oci", name, f"dir:{place / 'pushed'}")
        archive.write(place / "pushed", name, made, folder() / "layers")


def _secrets(place: Path) -> Sequence[str]:
    """Return options that show the build, and not the image, how this machine gets at Python packages."""
    reported = configparser.ConfigParser(interpolation=None)
    reported["global"] = {"timeout": "180"}
    done = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True)
    for line in done.stdout.splitlines():
        name, _, value = line.partition("=")
        setting = name.rpartition(".")[2]
        if setting in ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout", "retries"):
            reported["global"][setting] = value.strip("'\"")
    options = []
    certificates = next(
        (each for each in (os.environ.get("SSL_CERT_FILE"), *_CERTIFICATES) if each and Path(each).exists()), None
    )
    if certificates:
        reported["global"]["cert"] = "/run/certificates.pem"
        options += ["--secret", f"id=certificates,src={certificates}"]
    with (place / "pip.conf").open("w") as file:
        reported.write(file)
    return [*options, "--secret", f"id=pip,src={place / 'pip.conf'}"]


def _size(path: Path) -> int:
    """Return what a folder takes on disk, in bytes; 0 if it is not there."""
    done = subprocess.run(["du", "--summarize", "--block-size=1", path], capture_output=True, text=True)
    return int(done.stdout.split()[0]) if done.stdout else 0


def _forget_old() -> None:
    for part, kept in (("archives/orion-*.tar", KEPT), ("layers/*.gz", 4 * KEPT), ("bases/*.tar", 4)):
        for old in sorted(folder().glob(part), key=lambda path: path.stat().st_mtime, reverse=True)[kept:]:
            old.unlink(missing_ok=True)


__all__ = ["NAME", "Failed", "build"]
