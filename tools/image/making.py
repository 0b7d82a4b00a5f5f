"""Builds the image: makes the bases, runs the Dockerfile with buildah, and packs the result into an archive.

Every intermediate result is cached by its inputs, for all checkouts of a user: bases by their lock, layers by buildah,
archives by the sources and the name. So the first build takes minutes, a build after a change of code takes seconds,
and without a change nothing is built.
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
from tools.image.programs import Programs, folder

NAME = "localhost/orion"
FORMAT = "3"  # increase it if a change of this builder makes a different archive from the same sources
KEPT = 20  # number of archives in the cache, 66 MB each
# The image's label that lists how its base differs from debian.lock.
DRIFT = "gpu.orion.base.drift"
LARGEST_STORAGE = 6 << 30  # bytes; above it all cached layers are deleted
_CERTIFICATES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")


def build(
    say: Say = lambda line: None, edition: Edition = THIS, name: str = "", revision: str = "", strict: bool = False
) -> Path:
    """Return the archive of the image; build it if it does not exist yet.

    Args:
        say: called with each line of progress.
        edition: this checkout, or a modified version of it.
        name: in full, with a tag; default: `localhost/orion:` and the edition's tag.
        revision: of the sources, for the image's label; default: a digest of the sources.
        strict: accept only a base that matches its lock. Else, if the locked packages of Debian are no longer
            available, use the current packages and say so in a label.

    Raises:
        Missing: no image can be built here.
        Failed: buildah failed, the sources do not build, or the base cannot be made.
    """
    files = edition.of(sources.read())
    dockerfile = (sources.ROOT / "Dockerfile").read_text()
    revision = revision or _state(files, dockerfile)
    own = f"{NAME}:{edition.tag}"

    def path_of(base: Base) -> Path:
        key = sources.digest(files, dockerfile, FORMAT, base.state, base.drift, own, revision)
        return folder() / "archives" / f"orion-{key[:16]}.tar"

    base = bases.existing(strict)
    if base is None or not path_of(base).exists():
        programs = Programs.bring(say)
        with one_at_a_time(folder() / "archives", say, "building the image"):
            base = bases.get_or_make(programs, strict, say)
            if not path_of(base).exists():
                labels = {"version": editions.version(files), "revision": revision}
                _build(programs, files, dockerfile, own, labels, base, path_of(base), say)
        _forget_old()
    path_of(base).touch()
    return _called(name, path_of(base)) if name and name != own else path_of(base)


def state(edition: Edition = THIS) -> str:
    """Return the revision that the image's label has for the current sources."""
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
        say("deleting the cached layers of earlier builds")
        shutil.rmtree(folder() / "storage")
    labels = {f"org.opencontainers.image.{key}": value for key, value in labels.items()}
    labels |= {DRIFT: base.drift} if base.drift else {}
    with tempfile.TemporaryDirectory(prefix="build-", dir=folder() / "temporary") as temporary:
        scratch = Path(temporary)
        sources.write(files, scratch / "context")
        (scratch / "Dockerfile").write_text(dockerfile)
        say(f"building {name}")
        programs.buildah(
            "bud", "--layers", "--network", "host", "--timestamp", "0", *_secrets(scratch),
            f"--build-arg=BUILDER={bases.builder(programs, base, say)}",
            f"--build-arg=RUNTIME={bases.runtime(programs, base)}",
            # Not as build arguments: for labels with arguments, this buildah reuses cached layers with old values.
            *(f"--label={key}={value}" for key, value in labels.items()),
            "--file", scratch / "Dockerfile", "--tag", name, scratch / "context", say=say,
        )  # fmt: skip
        programs.buildah("push", "--disable-compression", "--format", "oci", name, f"dir:{scratch / 'pushed'}")
        archive.write(scratch / "pushed", name, made, folder() / "layers")


def _secrets(scratch: Path) -> Sequence[str]:
    """Return options that pass this machine's settings of pip to the build, but not into the image."""
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
    with (scratch / "pip.conf").open("w") as file:
        reported.write(file)
    return [*options, "--secret", f"id=pip,src={scratch / 'pip.conf'}"]


def _size(path: Path) -> int:
    """Return the disk usage of a folder in bytes; 0 if it does not exist."""
    done = subprocess.run(["du", "--summarize", "--block-size=1", path], capture_output=True, text=True)
    return int(done.stdout.split()[0]) if done.stdout else 0


def _forget_old() -> None:
    for part, kept in (("archives/orion-*.tar", KEPT), ("layers/*.gz", 4 * KEPT), ("bases/*.tar", 4)):
        for old in sorted(folder().glob(part), key=lambda path: path.stat().st_mtime, reverse=True)[kept:]:
            old.unlink(missing_ok=True)


__all__ = ["NAME", "build"]
