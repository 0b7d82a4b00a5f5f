"""Makes the driver's libraries available to one process where the container runtime did not inject them.

The module links the libraries below the driver's root into a temporary folder, which `LD_LIBRARY_PATH` can name.
`LD_LIBRARY_PATH` cannot name the node's library folder: that folder also holds the node's C library, which the
container's loader cannot use. NVIDIA's own programs run with chroot in the driver's root (control.py). The process here
cannot, because that root does not have the container's Python.
"""

import contextlib
import os
import platform
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

_FOLDERS = (
    f"usr/lib/{platform.machine()}-linux-gnu", "usr/lib64", "usr/lib", "lib64",
    "usr/local/nvidia/lib64", "home/kubernetes/bin/nvidia/lib64", "opt/nvidia/lib64",
)  # fmt: skip
""" Where drivers install their libraries, relative to the driver's root. """
_CUDA = "libcuda.so.1"
_LIBRARY = re.compile(r"lib(cuda|nvidia-[a-z0-9-]+)\.so\.[0-9.]+")
_LINKS_MAX = 16


@contextlib.contextmanager
def linked(driver_root: Path) -> Iterator[Path | None]:
    """Yield a temporary folder with links to the driver's libraries; None if there is no `libcuda.so.1`.

    Raises:
        OSError: the folder cannot be made.
    """
    for folder in _FOLDERS:
        found = _libraries(driver_root, driver_root / folder)
        if _CUDA in found:
            break
    else:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="orion-driver-") as links:
        for name, file in found.items():
            Path(links, name).symlink_to(file)
        yield Path(links)


def _libraries(root: Path, folder: Path) -> dict[str, Path]:
    try:
        names = sorted(name for name in os.listdir(folder) if _LIBRARY.fullmatch(name))
    except OSError:
        return {}
    files = {name: _followed(root, folder / name) for name in names}
    return {name: file for name, file in files.items() if file.is_file()}


def _followed(root: Path, path: Path) -> Path:
    """Resolve symbolic links with `root` as the root directory: Debian's alternatives are absolute links."""
    for _ in range(_LINKS_MAX):
        if not path.is_symlink():
            break
        target = path.readlink()
        path = root / target.relative_to("/") if target.is_absolute() else path.parent / target
    return path
