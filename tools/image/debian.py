"""The exact versions and hashes of Debian's packages in the base of `make image`: asked of apt, compared with a base.

Debian's mirrors have the newest version of a package and no other: each security update takes away one that is locked.
So a lock says when it was made as well, and a base that can no longer be made of today's packages is made of what the
archive of Debian's past had then. Where that cannot be reached, a build that insists on the lock fails, and every other
one takes today's packages and says so, in the image's labels too: no update of Debian's breaks a test.

Refused: packages kept in the repository or in a registry of ours (somebody would have to update them, and nobody sees
that they are old); a mirror of a fixed day for every build (it is slow, and it is one machine in the world).
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
# An archive of the past is some hours behind, and somebody who locks does so because of an update that just came out.
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
    """What a base is made of.

    Args:
        moment: at which the archive of Debian's past has these versions, such as `20260131T120000Z`.
        pins: by architecture and name.
    """

    moment: str
    pins: Mapping[str, Pins]

    @classmethod
    def read(cls, text: str) -> "Lock":
        """Read a lock.

        Raises:
            ValueError: a line is none of a lock.
        """
        moment, pins = "", {architecture: dict[str, Pin]() for architecture in ARCHITECTURES}
        for line in text.splitlines():
            if found := re.fullmatch(r"moment (\d{8}T\d{6}Z)", line):
                moment = found[1]
            elif (found := _PACKAGE.fullmatch(line)) and found[1] in ARCHITECTURES:
                pins[found[1]][found[2]] = Pin(found[3], found[4])
            elif not line.startswith("#"):
                known = " or ".join(ARCHITECTURES)
                raise ValueError(f"{LOCK.name} says {line!r}, which is neither a moment nor a package for {known}")
        if not moment:
            raise ValueError(f"{LOCK.name} says no moment")
        return cls(moment, pins)

    def __str__(self) -> str:
        packages = (
            f"{architecture} {name} {pin.version} sha256:{pin.digest}"
            for architecture, pins in self.pins.items()
            for name, pin in sorted(pins.items())
        )
        return "\n".join((_HEADER, f"moment {self.moment}", *packages, ""))

    def mirrors(self) -> list[str]:
        """Return the lines of a sources.list that has Debian as it was."""
        parts = (("debian", SUITE), ("debian", f"{SUITE}-updates"), ("debian-security", f"{SUITE}-security"))
        # What an archive of the past says of itself is not valid any more; apt still checks the signatures.
        return [f"deb [check-valid-until=no] {_PAST}/{place}/{self.moment} {suite} main" for place, suite in parts]


def differences(locked: Pins, installed: Pins) -> list[str]:
    """Return what is not in a base as it is locked, a few words each."""
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
    """Return what dpkg has installed, with the hashes that apt knew it by and has compared.

    Args:
        status: dpkg's records.
        lists: apt's, of all packages that there were.
    """
    return _with_hashes({each["Package"]: each["Version"] for each in records(status)}, lists)


def records(status: str) -> list[dict[str, str]]:
    """Return name and version of what dpkg's records say is installed, as its fields are called."""
    return [_fields(paragraph) for paragraph in status.split("\n\n") if "\nStatus: install ok installed" in paragraph]


def make(programs: Programs, base: Pins) -> Lock:
    """Return a lock of today's versions of what is in a base that has just been made, for every architecture.

    Args:
        programs: mmdebstrap among them.
        base: what the base has, on this machine's architecture.

    Raises:
        Failed: there is no way to Debian's packages.
    """
    moment = (datetime.now(UTC) + _LATE).strftime("%Y%m%dT%H%M%SZ")
    names = sorted(base)
    pins = {each: _chosen(programs, each, names) for each in ARCHITECTURES}
    return Lock(moment, {each: {name: found[name] for name in names} for each, found in pins.items()})


def _chosen(programs: Programs, architecture: str, names: Iterable[str]) -> dict[str, Pin]:
    """Return what mmdebstrap would install for an architecture, which need not be this machine's, and more with it."""
    tree = folder() / "temporary" / f"simulated-{architecture}"
    shutil.rmtree(tree, ignore_errors=True)
    said = programs.mmdebstrap(
        "--simulate", "--verbose", f"--architectures={architecture}", "--skip=check/qemu,cleanup/apt",
        "--variant=essential", f"--include={','.join(names)}", SUITE, tree,
    )  # fmt: skip
    # Both runs of apt: for the essential packages, and for those that were asked for.
    versions = dict(re.findall(r"(?m)^Inst (\S+) \((\S+) ", said))
    found = _with_hashes(versions, (tree / "var/lib/apt/lists").glob("*_Packages"))
    shutil.rmtree(tree)
    return found


def _with_hashes(versions: Mapping[str, str], lists: Iterable[Path]) -> dict[str, Pin]:
    found = {}
    for paragraph in (each for path in lists for each in path.read_text().split("\n\n")):
        name = paragraph.partition("\n")[0].removeprefix("Package: ")
        if name in versions:  # of tens of thousands
            fields = _fields(paragraph)
            if fields["Version"] == versions[name]:
                found[name] = Pin(fields["Version"], fields["SHA256"])
    if missing := versions.keys() - found.keys():
        raise LookupError(f"apt's lists have no hash of {', '.join(sorted(missing))}")
    return found


def _fields(paragraph: str) -> dict[str, str]:
    return dict(re.findall(r"(?m)^(Package|Version|SHA256): (.*)$", paragraph))


def architecture() -> str:
    """Return what Debian calls this machine's architecture."""
    return subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True).stdout.strip()
