"""Builds the hook on any machine, against glibc 2.17 (2012), so that it loads on other machines.

A local build links against the local glibc and loads on no older one. zig's compiler (PyPI's ``ziglang``) contains the
symbol versions of every glibc, so one command is enough. Rejected: a container of an old distribution (a second
compiler, and the build would need Docker); ``.symver`` (it lowers the versions, but leaves libdl and libpthread out of
NEEDED, and on old systems these two hold dlopen and pthread_create).

    python -m orion.hook.release OUTPUT [--architecture aarch64]
"""

import argparse
import subprocess
import sys
import tomllib
from pathlib import Path

from orion.hook import cuda_header

HERE = Path(__file__).resolve().parent
GLIBC = "2.17"
ARCHITECTURES = ("x86_64", "aarch64")  # the architectures with CUDA drivers


def command(output: Path, architecture: str) -> list[str]:
    """Return the compiler's command line."""
    source = HERE / "src"
    version = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["project"]["version"]
    return [
        *(sys.executable, "-m", "ziglang", "cc", "-target", f"{architecture}-linux-gnu.{GLIBC}"),
        *("-std=gnu11", "-O2", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden"),
        *("-ftls-model=initial-exec", "-fno-stack-protector", "-fno-sanitize=all", "-D_GNU_SOURCE"),
        *(f'-DORION_VERSION="{version}"', f"-I{source}", f"-I{HERE / 'include'}"),
        *("-isystem", str(cuda_header.find().parent)),
        # The published schedulers of src/baselines are for `orion bench` only.
        *(str(path) for path in sorted(source.rglob("*.c")) if path.parent.name != "baselines"),
        f"-Wl,--version-script={source / 'exports.map'},-z,nodelete,-z,now,-z,relro,-s",
        *("-ldl", "-lpthread", "-o", str(output)),
    ]


def build(output: Path, architecture: str = "x86_64") -> None:
    """Compile and link the hook.

    Raises:
        RuntimeError: the compiler failed; the message contains the compiler's output.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(command(output, architecture), capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)


def main() -> int:
    """Build the hook as the command line asks."""
    parser = argparse.ArgumentParser(prog="python -m orion.hook.release", description=__doc__.partition("\n")[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("--architecture", choices=ARCHITECTURES, default="x86_64")
    options = parser.parse_args()
    try:
        build(options.output, options.architecture)
    except (RuntimeError, FileNotFoundError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
