"""Runs the programs that make the image: buildah and mmdebstrap of the distribution, unpacked into the cache.

buildah restarts itself with an empty environment, so LD_LIBRARY_PATH cannot point to the libraries that were unpacked
with it. Instead, it runs in its own mount namespace, in which the loader's cache lists them after the machine's
libraries.
"""

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from testbed import binaries, debian_packages
from testbed.binaries import Say
from testbed.errors import Failed, Missing

PACKAGES = (
    "buildah", "mmdebstrap",
    # libraries of buildah
    "libgpgme11", "libassuan0", "libgpg-error0", "libseccomp2", "libdevmapper1.02.1",
)  # fmt: skip
OF_THE_MACHINE = ("unshare", "mount", "ldconfig", "perl", "apt-get", "dpkg", "tar")


def folder() -> Path:
    """Return the folder of the image's programs, bases, layers and archives; every checkout shares it."""
    return binaries.cache().with_name("image")


def why_not() -> str:
    """Return why no image can be built here, even after downloads, or an empty text."""
    if os.geteuid() != 0:
        return "building the image needs root (mounts); `docker build .` builds the same Dockerfile"
    missing = [name for name in OF_THE_MACHINE if not shutil.which(name, path=_path())]
    if missing:
        return f"building the image needs {', '.join(missing)} on PATH; `docker build .` builds the same Dockerfile"
    return ""


class Programs:
    """The unpacked programs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._storage = folder() / "storage"
        self._temporary = folder() / "temporary"

    @classmethod
    def bring(cls, say: Say) -> "Programs":
        """Download and unpack the programs, unless that was done before.

        Raises:
            Missing: no image can be built here, or the packages cannot be downloaded.
        """
        reason = why_not()
        if reason:
            raise Missing(reason)
        programs = cls(debian_packages.unpack(PACKAGES, folder() / "programs", say, "the programs that make images"))
        with (folder() / "programs.lock").open("w") as lock:  # or concurrent preparations overwrite each other's files
            fcntl.flock(lock, fcntl.LOCK_EX)
            programs._prepare()
        return programs

    def _prepare(self) -> None:
        """Write buildah's configuration files, so that it ignores this machine's configuration for containers."""
        self._temporary.mkdir(parents=True, exist_ok=True)
        self._setting("policy.json").write_text(json.dumps({"default": [{"type": "insecureAcceptAnything"}]}))
        for empty in ("registries.conf", "containers.conf"):
            self._setting(empty).write_text("")
        paths = f'driver = "overlay"\ngraphroot = "{self._storage}"\nrunroot = "{folder() / "running"}"\n'
        self._setting("storage.conf").write_text(f"[storage]\n{paths}")
        libraries = "".join(f"{each}\n" for each in sorted((self.root / "usr/lib").glob("*-linux-gnu")))
        self._setting("libraries.conf").write_text(f"include /etc/ld.so.conf\n{libraries}")
        self.run(["ldconfig", "-X", "-f", self._setting("libraries.conf"), "-C", self._setting("libraries.cache")])

    def _setting(self, name: str) -> Path:
        return self.root / name

    def buildah(self, *arguments: str | Path, say: Say | None = None) -> str:
        """Run buildah on our own storage; return its output.

        Raises:
            Failed: buildah failed.
        """
        own_libraries = 'mount --bind "$0" /etc/ld.so.cache && exec "$@"'
        command: list[str | Path] = ["unshare", "--mount", "sh", "-c", own_libraries, self._setting("libraries.cache")]
        command += [self.root / "usr/bin/buildah", arguments[0]]
        if arguments[0] in ("from", "commit", "bud", "push"):
            command += ["--signature-policy", self._setting("policy.json")]
        environment = {
            "BUILDAH_ISOLATION": "chroot",
            "TMPDIR": str(self._temporary),
            "CONTAINERS_CONF": str(self._setting("containers.conf")),
            "CONTAINERS_REGISTRIES_CONF": str(self._setting("registries.conf")),
            "CONTAINERS_STORAGE_CONF": str(self._setting("storage.conf")),
        }
        return self.run([*command, *arguments[1:]], environment, say)

    def has(self, image: str) -> bool:
        """Return whether an image is in the storage."""
        return image in self.buildah("images", "--format", "{{.Name}}:{{.Tag}}").splitlines()

    def mmdebstrap(self, *arguments: str | Path) -> str:
        """Run mmdebstrap; return its output.

        Raises:
            Failed: mmdebstrap failed.
        """
        # The same packages give the same archive: no file in it has a later time than this.
        environment = {"SOURCE_DATE_EPOCH": "0", "TMPDIR": str(self._temporary)}
        return self.run([self.root / "usr/bin/mmdebstrap", "--quiet", "--mode=root", *arguments], environment)

    def hooks(self, name: str) -> Path:
        """Return the folder of one of mmdebstrap's sets of hooks."""
        return self.root / "usr/share/mmdebstrap/hooks" / name

    def run(
        self, command: Sequence[str | Path], environment: dict[str, str] | None = None, say: Say | None = None
    ) -> str:
        """Run a program; return its output, and call `say` with each line.

        Raises:
            Failed: the program failed.
        """
        everything = {**os.environ, "PATH": f"{_path()}:{self.root / 'usr/bin'}", **(environment or {})}
        lines: list[str] = []
        with subprocess.Popen(
            [str(part) for part in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", env=everything,
        ) as process:  # fmt: skip
            assert process.stdout
            for line in process.stdout:
                lines.append(line.rstrip())
                if say:
                    say(line.rstrip())
        if process.returncode != 0:
            raise Failed(f"{Path(command[0]).name} failed:\n" + "\n".join(lines[-30:]))
        return "\n".join(lines)

    @contextlib.contextmanager
    def container(self, image: str) -> Iterator[str]:
        """Make a container of an image for this context; yield its name."""
        name = self.buildah("from", "--pull-never", image).splitlines()[-1]
        try:
            yield name
        finally:
            self.buildah("rm", name)


def _path() -> str:
    return os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
