"""Checks how the testbed finds the binaries of a cluster and builds missing ones. A shell script acts as `go`."""

import os
from pathlib import Path

import pytest

from testbed import binaries, go_modules
from testbed.binaries import BINARIES
from testbed.errors import Missing
from tools.tiers import run as tiers

API_SERVER = BINARIES[0]
# This script answers the testbed's calls of `go`. A build writes a file, but fails if the package's name ends with
# $REFUSED.
GO = """#!/bin/sh
if [ "$1" = env ]; then echo go1.99.0; exit; fi
for last; do :; done
case "$last" in *"${REFUSED:-nothing}") echo "no such module" >&2; exit 1;; esac
while [ "$1" != -o ]; do shift; done
echo built > "$2"
"""


def write_program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Simulate a machine without the binaries; return the only folder on PATH."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv(binaries.KUBERNETES, raising=False)
    (tmp_path / "bin").mkdir()
    for needed in ("sh", "dirname"):
        (tmp_path / "bin" / needed).symlink_to(f"/bin/{needed}")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path / "bin"


def prints_version(version: str) -> str:
    return f"#!/bin/sh\necho Kubernetes v{version}\n"


def test_versions_are_those_of_go_mod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(binaries.KUBERNETES, raising=False)
    found = {binary.pinned_by: set[str]() for binary in BINARIES}
    for binary in BINARIES:
        found[binary.pinned_by].add(binaries.minor(binary.version))
    assert found == {"kubernetes": {binaries.USUAL}, "etcd": {"3.7"}, "containerd": {"2.4"}}


@pytest.mark.parametrize("earlier", binaries.EARLIER)
def test_an_earlier_kubernetes_can_be_chosen(monkeypatch: pytest.MonkeyPatch, earlier: str) -> None:
    monkeypatch.setenv(binaries.KUBERNETES, earlier)
    assert binaries.minor(API_SERVER.version) == earlier
    assert API_SERVER.cached().parent.name == f"kubernetes-{API_SERVER.version}"
    assert f"-X k8s.io/client-go/pkg/version.gitVersion=v{earlier}" in go_modules.linker_flags(API_SERVER)
    monkeypatch.setenv(binaries.KUBERNETES, "1.12")
    with pytest.raises(Missing, match=r"ORION_TEST_KUBERNETES is '1\.12', and there are 1\.34, 1\.36, 1\.37"):
        _ = API_SERVER.version


def test_assets_come_before_path_and_path_before_the_cache(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    assert binaries.find(API_SERVER, lines.append) is None
    cached = write_program(API_SERVER.cached(), prints_version(API_SERVER.version))
    assert binaries.find(API_SERVER, lines.append) == cached
    on_path = write_program(bare / API_SERVER.name, prints_version(API_SERVER.version))
    assert binaries.find(API_SERVER, lines.append) == on_path
    asset = write_program(tmp_path / "assets" / API_SERVER.name, prints_version(f"{binaries.USUAL}.0"))
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(asset.parent))
    assert binaries.find(API_SERVER, lines.append) == asset
    assert lines == []


@pytest.mark.parametrize(
    ("text", "reported"), [(prints_version("1.31.2"), "1.31.2"), ("#!/bin/sh\n", "of no known version")]
)
def test_another_version_is_reported_and_not_used(bare: Path, text: str, reported: str) -> None:
    other, lines = write_program(bare / API_SERVER.name, text), list[str]()
    assert binaries.find(API_SERVER, lines.append) is None
    assert lines == [f"kube-apiserver: {other} is {reported}, {binaries.USUAL} is needed"]


def test_missing_binaries_are_named_with_the_next_step(bare: Path) -> None:
    with pytest.raises(Missing, match=r"kube-apiserver, .*etcd, .*not found.*make cluster-binaries"):
        binaries.find_all()


def test_missing_binaries_are_built_once_with_a_line_of_progress_each(bare: Path) -> None:
    write_program(bare / "go", GO)
    lines: list[str] = []
    go_modules.build_missing(lines.append)
    assert set(binaries.find_all()) == {binary.name for binary in BINARIES}
    for number, binary in enumerate(BINARIES, 1):
        assert f"  {number} of {len(BINARIES)}: {binary.name} {binary.version} ..." in lines
    assert not (binaries.cache() / "scratch").exists()
    (bare / "go").unlink()
    go_modules.build_missing(lines.append)  # succeeds without Go, because nothing is missing


def test_a_failed_build_reports_the_cause_and_the_next_run_continues(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_program(bare / "go", GO)
    monkeypatch.setenv("REFUSED", "kubectl")
    with pytest.raises(Missing, match=r"kubectl 1\.\d+\.\d+ could not be built: (.|\n)*no such module(.|\n)*GOPROXY"):
        go_modules.build_missing(lambda line: None)
    monkeypatch.delenv("REFUSED")
    lines: list[str] = []
    go_modules.build_missing(lines.append)
    assert next(line for line in lines if "1 of" in line).startswith("  1 of 6: kubectl")


def unavailable(*_: object) -> None:
    raise Missing("no Go here\nmore about it")


@pytest.mark.parametrize(("ci", "status"), [("", 0), ("true", 1)])
def test_a_tier_that_cannot_run_is_reported_and_fails_in_ci(
    bare: Path, monkeypatch: pytest.MonkeyPatch, ci: str, status: int
) -> None:
    monkeypatch.setitem(os.environ, "CI", ci)
    monkeypatch.setattr(go_modules, "build_missing", unavailable)
    assert tiers.run("cluster", []) == (status, "not run (no Go here)")


def test_a_tier_without_selected_tests_is_reported() -> None:
    assert tiers.run("cluster", ["-m", "gpu"]) == (0, "not run (left out by -m gpu)")
