"""The image of the examples: the program of examples/workload, and only what it needs to start.

The image has no shell and no Python, and its program runs as an unprivileged user. So the examples show that pods can
share a GPU under the pod security standard `restricted`. The program is linked dynamically, so that libraries can be
preloaded into it. Therefore the image contains this machine's loader and C library. The image contains no CUDA: as for
any CUDA image, the node provides the driver.
"""

import hashlib
import os
import shlex
import subprocess
import sysconfig
import tempfile
from pathlib import Path

from testbed import binaries
from testbed.errors import Failed
from testbed.images import Content, Image, with_libraries

NAME = "localhost/orion-example:dev"
PROGRAM = "/usr/bin/workload"
USER = "65532:65532"

SOURCES = Path(__file__).resolve().parents[1] / "examples" / "workload"
_FLAGS = ("-std=gnu11", "-D_GNU_SOURCE", "-O2", "-g", "-Wall", "-Wextra", "-Wl,--no-as-needed")
_LIBRARIES = ("-lm", "-ldl", "-pthread")  # libdl and libpthread are empty since glibc 2.34; older drivers need them
_PRELOADED_NEED = ("libpthread.so.0", "libdl.so.2", "librt.so.1")
""" Parts of glibc, empty since 2.34, that libraries for an older glibc (a released hook) need; in every image. """
_ACCOUNTS = b"root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/tmp:/sbin/nologin\n"
_GROUPS = b"root:x:0:\nnonroot:x:65532:\n"


def build() -> Path:
    """Return the compiled program. It is compiled once for each state of its sources, into the user's cache.

    Raises:
        Failed: the compiler or cuda.h is missing, or compiling failed.
    """
    command = [*shlex.split(os.environ.get("CC", "cc")), *_FLAGS, "-isystem", str(_cuda_include())]
    sources = sorted(SOURCES.glob("*.[ch]"))
    digest = hashlib.sha256("\0".join([*command, *(source.read_text() for source in sources)]).encode())
    program = binaries.cache().with_name("examples") / f"workload-{digest.hexdigest()[:16]}"
    if program.exists():
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=program.parent) as folder:
        fresh = Path(folder) / "workload"
        command += [str(source) for source in sources if source.suffix == ".c"]
        try:
            done = subprocess.run([*command, "-o", str(fresh), *_LIBRARIES], capture_output=True, text=True)
        except OSError as error:
            raise Failed(f"{command[0]}: {error.strerror}") from error
        if done.returncode:
            raise Failed(done.stderr)
        fresh.rename(program)
    return program


def files() -> dict[str, Content]:
    """Return the image's files by their paths in the image.

    Raises:
        Failed: as `build`.
        FileNotFoundError: a library is not on this machine.
    """
    program = build()
    content = with_libraries(program)
    del content[str(program)]
    libc = next(Path(name) for name in content if Path(name).name == "libc.so.6")
    content |= {str(libc.with_name(name)): libc.with_name(name).resolve() for name in _PRELOADED_NEED}
    return {**content, PROGRAM: program, "/etc/passwd": _ACCOUNTS, "/etc/group": _GROUPS, "/tmp/.keep": b""}


def example() -> Image:
    """Return the image.

    Raises:
        Failed: as `build`.
        FileNotFoundError: a library is not on this machine.
    """
    return Image(NAME, files(), entrypoint=(PROGRAM,), command=("--help",), user=USER)


def _cuda_include() -> Path:
    """Return the folder of cuda.h: from PyPI's nvidia-cuda-runtime in this Python, else from a CUDA toolkit."""
    for folder in (Path(sysconfig.get_path("purelib")), Path("/usr/local/cuda")):
        for header in sorted(folder.glob("nvidia/cu*/include/cuda.h"), reverse=True):
            return header.parent
        if (folder / "include/cuda.h").exists():
            return folder / "include"
    raise Failed("cuda.h not found: `pip install nvidia-cuda-runtime==13.5.37`")
