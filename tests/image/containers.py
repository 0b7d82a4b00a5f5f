"""A container of an image without a container runtime: its files, mounted read-only, in separate namespaces.

It tests properties of the image itself: whether it starts as any user, and whether it writes. Tests of the node tier
run the image in pods.
"""

import shutil
import subprocess
from pathlib import Path
from types import TracebackType

from tools.image.archive import Archive

_ENTER = """\
set -e
mount --make-rprivate /
mount --bind "$1" "$1"
mount --bind -o remount,ro "$1"
mount -t proc proc "$1/proc"
mount -t tmpfs -o size=1m,mode=755 tmpfs "$1/dev"
for device in null urandom; do touch "$1/dev/$device"; mount --bind "/dev/$device" "$1/dev/$device"; done
mount -o remount,ro "$1/dev"
root=$1 user=$2; shift 2
exec chroot --userspec="$user" "$root" "$@"
"""


class Container:
    """The unpacked files of an image; it runs one program at a time."""

    def __init__(self, image: Archive, root: Path) -> None:
        self._image = image
        self.root = root

    def __enter__(self) -> "Container":
        self._image.unpack(self.root)
        for folder in ("proc", "dev", "tmp"):
            (self.root / folder).mkdir(exist_ok=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self.root)

    def run(self, *command: str, user: str = "") -> subprocess.CompletedProcess[str]:
        """Run the entrypoint with arguments, as a runtime would: as the image's user, with its environment."""
        return self.execute(*self._image.configuration["config"]["Entrypoint"], *command, user=user)

    def execute(self, *command: str, user: str = "") -> subprocess.CompletedProcess[str]:
        """Run a program of the image."""
        settings = self._image.configuration["config"]
        environment = dict(each.split("=", 1) for each in settings["Env"])
        program = next(
            (f"{each}/{command[0]}" for each in environment["PATH"].split(":")
             if (self.root / each.lstrip("/") / command[0]).exists()),
            command[0],
        )  # fmt: skip
        enter = ["unshare", "--mount", "--pid", "--fork", "--net", "/bin/sh", "-c", _ENTER, "sh", str(self.root)]
        cleared = ["/usr/bin/env", "-i", *(f"{name}={value}" for name, value in environment.items()), program]
        return subprocess.run(
            [*enter, user or settings["User"], *cleared, *command[1:]],
            capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=100,
        )  # fmt: skip
