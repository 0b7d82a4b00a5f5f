"""Finds a cluster's own binaries: in `$KUBEBUILDER_ASSETS`, then on PATH, then in Orion's cache.

A binary of another minor version is skipped with a message: against an API server of another version than go.mod names,
tests would pass or fail for hidden reasons.
"""

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import Missing

MODULES = Path(__file__).parent / "go"
KUBERNETES = "ORION_TEST_KUBERNETES"
""" The variable that chooses another Kubernetes: its minor version. """
USUAL, EARLIER = "1.37", ("1.34", "1.36")
""" The minor versions that go/ pins. 1.34 has no DRA for GPUs that pods share. """
Say = Callable[[str], None]


@dataclass(frozen=True)
class Binary:
    """One program: the Go module under go/ that pins it, its package, and the arguments that print its version.

    Args:
        of_kubernetes: whether the version of Kubernetes that the variable chooses decides its version.
    """

    name: str
    pinned_by: str
    requires: str
    package: str
    version_arguments: tuple[str, ...] = ("--version",)
    of_kubernetes: bool = False

    @property
    def module(self) -> str:
        """The folder under go/ of the module that pins it."""
        chosen = os.environ.get(KUBERNETES) or USUAL
        if not self.of_kubernetes or chosen == USUAL:
            return self.pinned_by
        if chosen not in EARLIER:
            raise Missing(f"{KUBERNETES} is {chosen!r}, and there are {', '.join([*EARLIER, USUAL])}")
        return f"{self.pinned_by}-{chosen}"

    @property
    def version(self) -> str:
        """The version that go.mod requires, such as `1.34.4`."""
        text = (MODULES / self.module / "go.mod").read_text()
        found = re.search(rf"^\s*(?:require )?{re.escape(self.requires)} v(\S+)", text, re.MULTILINE)
        if not found:
            raise Missing(f"{MODULES / self.module / 'go.mod'} does not require {self.requires}")
        return found[1]

    def cached(self) -> Path:
        """The program's path in the cache once it has been built."""
        return cache() / f"{self.pinned_by}-{self.version}" / self.name


def _kubernetes(name: str, *version_arguments: str) -> Binary:
    package = f"k8s.io/kubernetes/cmd/{name}"
    return Binary(name, "kubernetes", "k8s.io/kubernetes", package, version_arguments or ("--version",), True)


def _containerd(name: str, *version_arguments: str) -> Binary:
    module = "github.com/containerd/containerd/v2"
    return Binary(name, "containerd", module, f"{module}/cmd/{name}", version_arguments or ("--version",))


CTR = _containerd("ctr")
# The longest build first: it compiles most of what the others share.
BINARIES = (
    _kubernetes("kube-apiserver"),
    _kubernetes("kubelet"),
    _kubernetes("kube-controller-manager"),
    _kubernetes("kube-scheduler"),
    _kubernetes("kubectl", "version", "--client"),
    _kubernetes("kube-proxy"),
    Binary("etcd", "etcd", "go.etcd.io/etcd/server/v3", "go.etcd.io/etcd/server/v3"),
    _containerd("containerd"),
    _containerd("containerd-shim-runc-v2", "-v"),
    CTR,
)
HELM = Binary("helm", "helm", "helm.sh/helm/v3", "helm.sh/helm/v3/cmd/helm", ("version", "--short"))
""" Installs the chart; a control plane does not need it. """


def cache() -> Path:
    """The folder of built binaries, outside the tree, so that every checkout shares them."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "orion" / "control-plane"


@contextlib.contextmanager
def one_at_a_time(folder: Path, say: Say, what: str) -> Iterator[None]:
    """Hold the lock of `folder` while filling it; call `say` if another process holds the lock, and wait."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another process is {what}; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def minor(version: str) -> str:
    """Return `1.34` of `1.34.4`."""
    return ".".join(version.split(".")[:2])


def reported_version(program: Path, arguments: Iterable[str]) -> str:
    """Return the version that a program reports, or an empty text."""
    try:
        done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = re.search(r"\bv?(\d+\.\d+\.\d+)", done.stdout)
    return found[1] if found else ""


def _candidates(binary: Binary) -> Iterator[Path]:
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if assets and (Path(assets) / binary.name).is_file():
        yield Path(assets) / binary.name
    on_path = shutil.which(binary.name)
    if on_path:
        yield Path(on_path)


def find(binary: Binary, say: Say) -> Path | None:
    """Return the first binary of the required minor version; call `say` for those that are skipped."""
    for candidate in _candidates(binary):
        version = reported_version(candidate, binary.version_arguments)
        if version and minor(version) == minor(binary.version):
            return candidate
        say(f"{binary.name}: {candidate} is {version or 'of no known version'}, {minor(binary.version)} is needed")
    built = binary.cached()
    return built if built.is_file() else None


def find_all(say: Say = lambda _: None, wanted: Iterable[Binary] = BINARIES) -> dict[str, Path]:
    """Return every binary of ``wanted`` by its name.

    Raises:
        Missing: some binaries are neither on this machine nor built.
    """
    found = {binary.name: find(binary, say) for binary in wanted}
    missing = [name for name, path in found.items() if path is None]
    if missing:
        raise Missing(
            f"{', '.join(missing)} not found in $KUBEBUILDER_ASSETS, on PATH or in {cache()}; "
            "`make cluster-binaries` builds what is missing"
        )
    return {name: path for name, path in found.items() if path is not None}
