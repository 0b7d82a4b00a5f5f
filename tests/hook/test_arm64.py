"""The C code in images for arm64 compiles for arm64. test_symbols.py links the hook for arm64."""

import subprocess
import sys
from pathlib import Path

import pytest

from orion.hook import cuda_header, release

HOOK = Path(release.__file__).resolve().parent


@pytest.mark.parametrize("room", ["sim", "profiler", "starting"])
def test_compiles_for_arm64(room: str, tmp_path: Path) -> None:
    sources = sorted(HOOK.glob(f"{room}/*.c"))
    target = f"aarch64-linux-gnu.{release.GLIBC}"
    done = subprocess.run(
        [sys.executable, "-m", "ziglang", "cc", "-target", target, "-c", "-std=gnu11", "-D_GNU_SOURCE",
         '-DORION_VERSION="0"', f"-I{HOOK / 'include'}", "-isystem", cuda_header.find().parent, *sources],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert sources
    assert done.returncode == 0, done.stderr
