"""The programs that make the image: buildah and mmdebstrap of the distribution, unpacked and run from the cache.

buildah starts itself again with an empty environment, so LD_LIBRARY_PATH cannot tell it where the libraries are that
came with it. It runs in a mount namespace of its own in which the loader's cache lists them, after the machine's own.
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
from testbed.binaries import Say, Unavailable

PACKAGES = (
    "buildah", "mmdebstrap",
    # libraries of buildah
    "libgpgme11", "libassuan0", "libgpg-error0", "libseccomp2", "libdevmapper1.02.1",
)  # fmt: skip
OF_THE_MACHINE = ("unshare", "mount", "ldconfig", "perl", "apt-get", "dpkg", "tar")


class Failed(Exception):
    """A program could not do its part; the text is what it said last."""


def folder() -> Path:
    """Where the image's programs, bases, layers and archives are, shared by every checkout."""
    return binaries.cache().with_name("image")


def why_not() -> str:
    """Return why no image can be built here whatever is downloaded, or an empty text."""
    if os.geteuid() != 0:
        return "building the image needs root (mounts); `docker build .` builds the same Dockerfile"
    missing = [name for name in OF_THE_MACHINE if not shutil.which(name, path=_path())]
    if missing:
        return f"building the image needs {', '.join(missing)} on PATH; `docker build .` builds the same Dockerfile"
    return ""


class Programs:
    """The programs, once they are here."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._storage = folder() / "storage"
        self._temporary = folder() / "temporary"

    @classmethod
    def bring(cls, say: Say) -> "Programs":
        """Download and unpack them unless they are here.

        Raises:
            Unavailable: no image can be built here, or there is no way to the packages.
        """
        reason = why_not()
        if reason:
            raise Unavailable(reason)
        programs = cls(debian_packages.unpack(PACKAGES, folder() / "programs", say, "the programs that make images"))
        with (folder() / "programs.lock").open("w") as lock:  # two that prepare at once would take each other's files
            fcntl.flock(lock, fcntl.LOCK_EX)
            programs._prepare()
        return programs

    def _prepare(self) -> None:
        """Write what buildah is told by files, so that what the machine says of containers does not matter."""
        self._temporary.mkdir(parents=True, exist_ok=True)
        self._setting("policy.json").write_text(json.dumps({"default": [{"type": "insecureAcceptAnything"}]}))
        for empty in ("registries.conf", "containers.conf"):
            self._setting(empty).write_text("")
        places = f'driver = "overlay"\ngraphroot = "{self._storage}"\nrunroot = "{folder() / "running"}"\n'
        self._setting("storage.conf").write_text(f"[storage]\n{places}")
        libraries = "".join(f"{each}\n" for each in sorted((self.root / "usr/lib").glob("*-linux-gnu")))
        self._setting("libraries.conf").write_text(f"include /etc/ld.so.conf\n{libraries}")
        self.run(["ldconfig", "-X", "-f", self._setting("libraries.conf"), "-C", self._setting("libraries.cache")])

    def _setting(self, name: str) -> Path:
        return self.root / name

    def buildah(self, *arguments: str | Path, say: Say | None = None) -> str:
        """Run buildah on the storage of our own; return what it printed.

        Raises:
            Failed: it did.
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
        """Tell whether an image is in the storage."""
        return image in self.buildah("images", "--format", "{{.Name}}:{{.Tag}}").splitlines()

    def mmdebstrap(self, *arguments: str | Path) -> str:
        """Run mmdebstrap; return what it printed.

        Raises:
            Failed: it did.
        """
        # The same packages give the same archive: nothing in it is younger than this.
        environment = {"SOURCE_DATE_EPOCH": "0", "TMPDIR": str(self._temporary)}
        return self.run([self.root / "usr/bin/mmdebstrap", "--quiet", "--mode=root", *arguments], environment)

    def hooks(self, name: str) -> Path:
        """Return the folder of one of mmdebstrap's own sets of hooks."""
        return self.root / "usr/share/mmdebstrap/hooks" / name

    def run(
        self, command: Sequence[str | Path], environment: dict[str, str] | None = None, say: Say | None = None
    ) -> str:
        """Run a program; return its output, of which `say` hears every line.

        Raises:
            Failed: it did.
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
        """Have a container of an image: its name, for as long as it is wanted."""
        name = self.buildah("from", "--pull-never", image).splitlines()[-1]
        try:
            yield name
        finally:
            self.buildah("rm", name)


def _path() -> str:
    return os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
