"""The exact versions and hashes of Debian's packages in the base of `make image`: apt resolves them.

Debian's mirrors keep only the newest version of a package, so each security update removes a locked version. The lock
therefore contains a date, too. If the current packages no longer match the lock, the base is made from the snapshot
archive of that date. If the archive is unreachable, a strict build fails. Any other build uses the current packages and
says so in the image's labels. So no update of Debian breaks a test.

Two alternatives were rejected. If we kept packages in the repository or in our own registry, someone would have to
update them, and nobody would notice that they are old. If every build used the snapshot archive, builds would be slow
and would depend on one server.
"""

import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tools.image.programs import Programs, folder

SUITE = "bookworm"
ARCHITECTURES = ("amd64", "arm64")
LOCK = Path(__file__).with_name("debian.lock")
_PACKAGE = re.compile(r"(\w+) (\S+) (\S+) sha256:([0-9a-f]{64})")
_PAST = "http://snapshot.debian.org/archive"
# The snapshot archive gets updates some hours late, and a lock is usually renewed just after an update.
_LATE = timedelta(hours=12)
_HEADER = (
    "# Made by `python -m tools.image lock`: the packages in the base of `make image`, and the moment at which the\n"
    f"# archive of Debian's past has them. It is {_LATE.seconds // 3600} h after the lock was made, on purpose:\n"
    "# that archive is some hours behind."
)


@dataclass(frozen=True)
class Pin:
    """One version of a package, and the SHA-256 of its file."""

    version: str
    digest: str


Pins = Mapping[str, Pin]


@dataclass(frozen=True)
class Lock:
    """The packages of a base.

    Args:
        moment: time at which the snapshot archive has these versions, such as `20260131T120000Z`.
        pins: by architecture and name.
    """

    moment: str
    pins: Mapping[str, Pins]

    @classmethod
    def read(cls, text: str) -> "Lock":
        """Read a lock.

        Raises:
            ValueError: a line is not part of a lock.
        """
        moment, pins = "", {architecture: dict[str, Pin]() for architecture in ARCHITECTURES}
        for line in text.splitlines():
            if found := re.fullmatch(r"moment (\d{8}T\d{6}Z)", line):
                moment = found[1]
            elif (found := _PACKAGE.fullmatch(line)) and found[1] in ARCHITECTURES:
                pins[found[1]][found[2]] = Pin(found[3], found[4])
            elif not line.startswith("#"):
                known = " or ".join(ARCHITECTURES)
                raise ValueError(f"{LOCK.name} has {line!r}, which is neither a moment nor a package for {known}")
        if not moment:
            raise ValueError(f"{LOCK.name} has no moment")
        return cls(moment, pins)

    def __str__(self) -> str:
        packages = (
            f"{architecture} {name} {pin.version} sha256:{pin.digest}"
            for architecture, pins in self.pins.items()
            for name, pin in sorted(pins.items())
        )
        return "\n".join((_HEADER, f"moment {self.moment}", *packages, ""))

    def mirrors(self) -> list[str]:
        """Return the lines of a sources.list for Debian at the moment of the lock."""
        parts = (("debian", SUITE), ("debian", f"{SUITE}-updates"), ("debian-security", f"{SUITE}-security"))
        # The metadata of a snapshot has expired; apt still checks its signatures.
        return [f"deb [check-valid-until=no] {_PAST}/{part}/{self.moment} {suite} main" for part, suite in parts]


def differences(locked: Pins, installed: Pins) -> list[str]:
    """Return how a base differs from its lock, each difference in a few words."""
    found = [f"{name} {installed[name].version} is not locked" for name in installed.keys() - locked.keys()]
    found += [f"{name} is missing" for name in locked.keys() - installed.keys()]
    for name in locked.keys() & installed.keys():
        was, now = locked[name], installed[name]
        if was.version != now.version:
            found.append(f"{name} {now.version} instead of {was.version}")
        elif was.digest != now.digest:
            found.append(f"{name} {now.version} with another hash")
    return sorted(found)


def installed(status: str, lists: Iterable[Path]) -> dict[str, Pin]:
    """Return what dpkg has installed, with the hashes from apt's lists, which apt has verified.

    Args:
        status: dpkg's records.
        lists: apt's package lists.
    """
    return _with_hashes({each["Package"]: each["Version"] for each in records(status)}, lists)


def records(status: str) -> list[dict[str, str]]:
    """Return package name and version of each installed package, as fields of dpkg's records."""
    return [_fields(paragraph) for paragraph in status.split("\n\n") if "\nStatus: install ok installed" in paragraph]


def make(programs: Programs, base: Pins) -> Lock:
    """Return a lock of today's versions of the packages in a base that has just been made, for every architecture.

    Args:
        programs: to run mmdebstrap.
        base: the packages of the base, for this machine's architecture.

    Raises:
        Failed: Debian's packages cannot be reached.
    """
    moment = (datetime.now(UTC) + _LATE).strftime("%Y%m%dT%H%M%SZ")
    names = sorted(base)
    pins = {each: _chosen(programs, each, names) for each in ARCHITECTURES}
    return Lock(moment, {each: {name: found[name] for name in names} for each, found in pins.items()})


def _chosen(programs: Programs, architecture: str, names: Iterable[str]) -> dict[str, Pin]:
    """Return the packages that mmdebstrap would install for an architecture, which may differ from this machine's."""
    tree = folder() / "temporary" / f"simulated-{architecture}"
    shutil.rmtree(tree, ignore_errors=True)
    output = programs.mmdebstrap(
        "--simulate", "--verbose", f"--architectures={architecture}", "--skip=check/qemu,cleanup/apt",
        "--variant=essential", f"--include={','.join(names)}", SUITE, tree,
    )  # fmt: skip
    # apt runs twice: for the essential packages, and for those of --include.
    versions = dict(re.findall(r"(?m)^Inst (\S+) \((\S+) ", output))
    found = _with_hashes(versions, (tree / "var/lib/apt/lists").glob("*_Packages"))
    shutil.rmtree(tree)
    return found


def _with_hashes(versions: Mapping[str, str], lists: Iterable[Path]) -> dict[str, Pin]:
    found = {}
    for paragraph in (each for path in lists for each in path.read_text().split("\n\n")):
        name = paragraph.partition("\n")[0].removeprefix("Package: ")
        if name in versions:  # the lists have tens of thousands of packages
            fields = _fields(paragraph)
            if fields["Version"] == versions[name]:
                found[name] = Pin(fields["Version"], fields["SHA256"])
    if missing := versions.keys() - found.keys():
        raise LookupError(f"apt's lists have no hash of {', '.join(sorted(missing))}")
    return found


def _fields(paragraph: str) -> dict[str, str]:
    return dict(re.findall(r"(?m)^(Package|Version|SHA256): (.*)$", paragraph))


def architecture() -> str:
    """Return Debian's name of this machine's architecture."""
    return subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True).stdout.strip()
