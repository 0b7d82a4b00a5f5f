"""`orion doctor` with and without a driver, the hook's library, and MPS daemons."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from orion.cli.checks import Status, examine, library, mps, node
from orion.cli.main import main
from tests.cli.orion_command import orion


def test_json_has_every_check_with_its_reason(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    status = main(["doctor", "--json", "--simulated", "--root", str(tmp_path)])
    found = json.loads(capsys.readouterr().out)
    assert status == (0 if found["ok"] else 1)
    assert found["ok"] == all(check["status"] != "fail" for check in found["checks"])
    names = [check["name"] for check in found["checks"]]
    assert len(set(names)) == len(names)
    for check in found["checks"]:
        assert check["reason"]
        assert check["fix"] or check["status"] != "fail", check


def test_a_path_is_shown_whole_on_a_narrow_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("x" * 90)
    monkeypatch.setenv("COLUMNS", "60")
    done = orion("doctor", "--simulated", "--root", long)
    assert str(long) in "".join(done.stdout.split())


def test_doctor_finds_the_hook_that_was_built(tmp_path: Path) -> None:
    found = {check.name: check for check in examine(tmp_path, simulated=True)}
    assert found["hook library"].status is Status.OK
    assert found["preloading"].status is Status.OK, found["preloading"]
    assert found["C library"].status is not Status.FAIL


def test_without_the_library_the_fix_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Path:
        raise FileNotFoundError

    monkeypatch.setattr("orion.hook.library", missing)
    (check,) = library.examine()
    assert check.status is Status.FAIL
    assert "pip install" in check.fix


def test_an_invalid_library_is_a_finding(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "liborion_hook.so"
    broken.write_bytes(b"\x7fELF\x02\x01" + bytes(40))
    monkeypatch.setattr("orion.hook.library", lambda: broken)
    statuses = {check.name: check.status for check in library.examine()}
    assert statuses["preloading"] is Status.FAIL


def test_an_impossible_root_is_a_finding(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    assert {c.name: c for c in node.examine(file)}["root directory"].status is Status.FAIL
    long = tmp_path / ("x" * 90)  # longer than the address of a socket may be
    assert {c.name: c for c in node.examine(long)}["root directory"].status is Status.OK


def test_needed_versions_are_those_that_the_linker_recorded(tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler is not None, "the host tier needs a C compiler"
    source = tmp_path / "a.c"
    source.write_text('#include <stdio.h>\nconst char *n = "GLIBC_2.99";\nint f(void) { return puts(n); }\n')
    subprocess.run([compiler, "-shared", "-fPIC", "-o", tmp_path / "a.so", source], check=True)
    versions = library.needed_versions(tmp_path / "a.so")
    assert any(version.startswith("GLIBC_2.") for version in versions)
    assert "GLIBC_2.99" not in versions


@pytest.mark.parametrize("content", [b"", b"text", b"\x7fELF\x01\x01" + bytes(64), b"\x7fELF\x02\x01" + b"\xff" * 200])
def test_a_file_that_is_not_a_library_is_rejected(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(ValueError, match=r"ELF|damaged"):
        library.needed_versions(tmp_path / "x")


def test_newest_glibc() -> None:
    assert library.newest_glibc({"GLIBC_2.2.5", "GLIBC_2.17", "GLIBC_2.4", "GLIBC_PRIVATE", "GCC_3.0"}) == (2, 17)
    assert library.newest_glibc(set()) == (0,)


def test_without_a_driver_it_exits_with_1(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "orion.cli", "doctor", "--json", "--root", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    checks = {check["name"]: check["status"] for check in json.loads(done.stdout)["checks"]}
    assert done.returncode == (1 if "fail" in checks.values() else 0)
    assert "CUDA driver" in checks


def _process(proc: Path, number: int, command: str, pipes: str | None) -> None:
    (proc / str(number)).mkdir(parents=True)
    (proc / str(number) / "comm").write_text(f"{command[:15]}\n")
    environment = b"A=1\0" + (f"CUDA_MPS_PIPE_DIRECTORY={pipes}\0".encode() if pipes else b"")
    (proc / str(number) / "environ").write_bytes(environment)


def test_mps_daemons_are_found_with_the_programs_that_reach_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    proc, pipes = tmp_path / "proc", tmp_path / "pipes"
    _process(proc, 1, "init", None)
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(pipes))
    (check,) = mps.examine(proc)
    assert check.status is Status.OK
    assert "no daemon" in check.reason
    _process(proc, 71, "nvidia-cuda-mps-control", "/elsewhere")
    (check,) = mps.examine(proc)
    assert check.status is Status.NOTE
    assert "programs started here do not reach it" in check.reason
    assert "/elsewhere" in check.reason
    pipes.mkdir()
    (pipes / "control").touch()
    (check,) = mps.examine(proc)
    assert f"process 71, pipes in {pipes}" in check.reason
    assert "share one context" in check.reason
    shutil.rmtree(proc / "71")
    (check,) = mps.examine(proc)
    assert "runs outside this container" in check.reason
