"""Builds missing binaries from the Go modules that go/ pins, once, into the cache.

Modules come through GOPROXY as the environment has it. Module and build cache lie beside the binaries and are dropped
when all are built: 4 GB that nothing needs afterwards. One program that holds all components was tried on paper and
refused: linking each takes 2 to 7 s, so it would save 10 s and be a control plane that nobody else runs.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from tools.cluster import binaries, go_toolchain
from tools.cluster.binaries import MODULES, Binary, Say, Unavailable

# The packages that components take their own version from; without it an API server calls itself v0.0.0.
STAMPED = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")


def linker_flags(binary: Binary) -> str:
    """Return the linker's flags: no symbols, and what the program tells of itself."""
    flags = ["-s", "-w"]
    if binary.module == "kubernetes":
        major, middle, _ = binary.version.split(".", 2)
        stamps = {"gitVersion": f"v{binary.version}", "gitMajor": major, "gitMinor": middle}
        stamps |= {"gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z"}
        flags += [f"-X {package}.{key}={value}" for package in STAMPED for key, value in stamps.items()]
    if binary.module == "helm":
        flags += [f"-X {name}={value}" for name, value in _helm_stamps(binary).items()]
    return " ".join(flags)


def _helm_stamps(helm: Binary) -> dict[str, str]:
    """Return what Helm's own build stamps: its version, and the Kubernetes that it renders for without a cluster."""
    major, middle, _ = binaries.BINARIES[0].version.split(".", 2)
    stamps = {"helm.sh/helm/v3/internal/version.version": f"v{helm.version}"}
    for package in ("helm.sh/helm/v3/pkg/lint/rules", "helm.sh/helm/v3/pkg/chartutil"):
        stamps |= {f"{package}.k8sVersionMajor": major, f"{package}.k8sVersionMinor": middle}
    return stamps


def _compile(binary: Binary, go: Path, scratch: Path) -> None:
    """Compile and link one binary.

    Raises:
        Unavailable: Go could not, with its last words and where all of them are.
    """
    environment = os.environ | {
        "CGO_ENABLED": "0",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
        "GOCACHE": str(scratch / "build"),
        "GOMODCACHE": str(scratch / "modules"),
    }
    environment.pop("GOROOT", None)  # that of another Go would be used
    fresh, target, log = scratch / binary.name, binary.cached(), scratch / f"{binary.name}.log"
    command = [str(go), "build", "-trimpath", "-buildvcs=false", "-modcacherw", "-ldflags", linker_flags(binary)]
    command += ["-o", str(fresh), binary.package]
    with log.open("w") as output:
        place = MODULES / binary.module
        done = subprocess.run(
            command, cwd=place, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    if done.returncode != 0:
        last = "\n  ".join(log.read_text().strip().splitlines()[-5:])
        raise Unavailable(
            f"{binary.name} {binary.version} could not be built: go ended with {done.returncode}\n  {last}\n"
            f"all of its output: {log}; modules come through GOPROXY ({go} env GOPROXY), and 5 GB of disk are needed"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    os.replace(fresh, target)  # so that whoever looks meanwhile sees a whole binary or none


def _build(missing: Sequence[Binary], say: Say) -> None:
    scratch = binaries.cache() / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    go = go_toolchain.find(scratch, say)
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
    """Build what `binaries.find` does not find of `wanted`; whoever else wants the same at the same time waits for it.

    What an interrupted run has compiled is kept, and the next one goes on from there.

    Raises:
        Unavailable: there is no Go, or a build failed.
    """
    missing = [binary for binary in wanted if binaries.find(binary, say) is None]
    if not missing:
        return
    with binaries.one_at_a_time(binaries.cache(), say, "building the cluster's binaries"):
        missing = [binary for binary in missing if not binary.cached().is_file()]
        if missing:
            _build(missing, say)
