"""The programs of a node besides Kubernetes and containerd: runc, CNI plugins, iptables; from PATH or the distribution.

Nothing is installed. Packages are downloaded, unpacked into the cache and run from there, with the libraries that they
need and the machine may not have. Container images with all these programs (kind, k3s) were rejected, because they need
a registry and a container runtime in the first place.
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed import binaries, debian_packages
from testbed.binaries import Say
from testbed.errors import Missing

PACKAGES = (
    "runc", "containernetworking-plugins", "iptables", "busybox-static",
    # libraries of runc and iptables
    "libseccomp2", "libxtables12", "libnftnl11", "libmnl0", "libip4tc2", "libip6tc2", "libnfnetlink0",
    "libnetfilter-conntrack3",
)  # fmt: skip
PROGRAMS = ("runc", "iptables", "iptables-save", "iptables-restore")
SYSTEM_FOLDERS = ("/usr/sbin", "/sbin")  # not every user has them on PATH
CNI_FOLDERS = ("/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni")
CNI_PLUGINS = ("ptp", "host-local", "loopback")
# Debian's installation chooses between two iptables by links; the one that uses nftables is the default.
TABLES = tuple(f"{name}{what}" for name in ("iptables", "ip6tables") for what in ("", "-save", "-restore"))
OF_THE_MACHINE = {"ip": "iproute2", "mount": "mount"}


@dataclass(frozen=True)
class Runtime:
    """The paths of a node's programs, and the environment in which they find each other and their libraries."""

    cni: Path
    busybox: Path
    environment: Mapping[str, str]

    def program(self, name: str) -> str:
        """Return the path of a program."""
        found = shutil.which(name, path=self.environment["PATH"])
        if not found:
            raise Missing(f"{name} is not on PATH, and not among the packages {', '.join(PACKAGES)}")
        return found


def folder() -> Path:
    """Return the folder in which packages are unpacked; every checkout shares it."""
    return binaries.cache().with_name("node-packages")


def unpacked() -> Path:
    """Return the folder of these packages once they have been unpacked."""
    return debian_packages.unpacked(PACKAGES, folder())


def why_not() -> str:
    """Return why no node can run here, even after downloads, or an empty text."""
    if os.geteuid() != 0:
        return "a node needs root: namespaces, mounts, cgroups"
    missing = [f"{program} ({package})" for program, package in OF_THE_MACHINE.items() if not shutil.which(program)]
    if missing:
        return f"a node needs {', '.join(missing)} on PATH"
    if not Path("/sys/fs/cgroup").is_mount():
        return "a node needs cgroups at /sys/fs/cgroup"
    return ""


def find() -> Runtime:
    """Return a node's programs: from the machine first, then from the unpacked packages.

    Raises:
        Missing: some programs are in neither, or no node can run here.
    """
    reason = why_not()
    if reason:
        raise Missing(reason)
    root = unpacked()
    path = [os.environ.get("PATH", os.defpath), *SYSTEM_FOLDERS]
    machine = os.pathsep.join(path)
    if runtime := binaries.find(binaries.CTR, lambda _: None):
        path.insert(0, str(runtime.parent))  # containerd looks for its shim on PATH
    path += [str(root / part) for part in ("usr/bin", "usr/sbin", "tables")]
    environment = {"PATH": os.pathsep.join(path)}
    missing = [name for name in PROGRAMS if not shutil.which(name, path=environment["PATH"])]
    cni = _first([*map(Path, CNI_FOLDERS), root / "usr/lib/cni"], CNI_PLUGINS)
    busybox = root / "usr/bin/busybox", root / "bin/busybox"
    static = next((each for each in busybox if each.is_file()), None)
    if missing or not cni or not static:
        what = [*missing, *([] if cni else ["CNI plugins"]), *([] if static else ["a static busybox"])]
        raise Missing(f"{', '.join(what)}: neither on this machine nor in {root}; `make cluster` downloads them")
    libraries = [str(each) for each in sorted((root / "usr/lib").glob("*-linux-gnu"))]
    if libraries and not shutil.which("iptables", path=machine):
        environment["XTABLES_LIBDIR"] = str(Path(libraries[0]) / "xtables")
    # The machine's own libraries come first, so that its own programs keep using them.
    environment["LD_LIBRARY_PATH"] = os.pathsep.join([f"/usr/lib/{Path(each).name}" for each in libraries] + libraries)
    return Runtime(cni, static, environment)


def _first(folders: Sequence[Path], needed: Sequence[str]) -> Path | None:
    return next((each for each in folders if all((each / name).is_file() for name in needed)), None)


def bring_missing(say: Say) -> None:
    """Download and unpack the packages unless the machine has everything that a node needs.

    Raises:
        Missing: no node can run here, or the packages cannot be downloaded.
    """
    reason = why_not()
    if reason:
        raise Missing(reason)
    try:
        find()
        return
    except Missing:
        pass
    if not unpacked().exists() and not debian_packages.is_possible():
        raise Missing(f"there is no apt-get here; install what a node needs: {', '.join(PROGRAMS)}, CNI plugins")
    debian_packages.unpack(PACKAGES, folder(), say, "a node's packages", _choose_tables)
    find()


def _choose_tables(root: Path) -> None:
    (root / "tables").mkdir()
    for name in TABLES:
        (root / "tables" / name).symlink_to("../usr/sbin/xtables-nft-multi")
