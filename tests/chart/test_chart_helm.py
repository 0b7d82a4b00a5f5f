"""`testbed.helm` finds Helm or builds it once, and runs it without the user's own settings."""

import os
from pathlib import Path

import pytest

from testbed import binaries, go_modules, helm
from testbed.binaries import HELM
from testbed.errors import Missing

GO = """#!/bin/sh
if [ "$1" = env ]; then echo go1.99.0; exit; fi
while [ "$1" != -o ]; do shift; done
printf '#!/bin/sh\\necho "$@ KUBECONFIG=$KUBECONFIG HELM=$HELM_NAMESPACE"\\n' > "$2"
chmod 755 "$2"
"""


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without Helm, whose fake Go builds a Helm that prints its arguments; returns the folder on its PATH."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    (tmp_path / "bin").mkdir()
    for needed in ("sh", "chmod"):
        (tmp_path / "bin" / needed).symlink_to(f"/bin/{needed}")
    go = tmp_path / "bin" / "go"
    go.write_text(GO)
    go.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path / "bin"


def test_helm_is_built_once_and_by_one_process(bare: Path) -> None:
    said: list[str] = []
    program = helm.program(said.append)
    assert program == HELM.cached()
    assert any("building 1 binaries" in line and "a minute or two" in line for line in said)
    (bare / "go").unlink()
    assert helm.program(said.append) == program
    assert not (binaries.cache() / "scratch").exists()


def test_a_failed_build_is_an_error(bare: Path) -> None:
    (bare / "go").write_text('#!/bin/sh\nif [ "$1" = env ]; then echo go1.99.0; exit; fi\nexit 1\n')
    with pytest.raises(Missing, match=rf"helm {HELM.version} could not be built"):
        helm.program()


def test_the_users_settings_have_no_effect(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "HELM_NAMESPACE", "mine")
    monkeypatch.setitem(os.environ, "KUBECONFIG", "/mine")
    assert helm.run("template").strip() == "template KUBECONFIG=/dev/null HELM="
    assert "--kubeconfig /there" in helm.run("list", kubeconfig=Path("/there"))


def test_helm_knows_its_version_and_the_kubernetes_of_the_clusters() -> None:
    flags = go_modules.linker_flags(HELM)
    assert f"version.version=v{HELM.version}" in flags
    major, minor, _ = binaries.BINARIES[0].version.split(".")
    assert f"chartutil.k8sVersionMajor={major}" in flags
    assert f"chartutil.k8sVersionMinor={minor}" in flags


def test_the_packed_chart_is_complete(tmp_path: Path) -> None:
    helm.run("package", str(helm.CHART), "--destination", str(tmp_path))
    (packed,) = tmp_path.glob("orion-*.tgz")
    command = ["template", "orion", "--kube-version", "1.34.0"]
    assert helm.run(*command, str(packed)) == helm.run(*command, str(helm.CHART))
