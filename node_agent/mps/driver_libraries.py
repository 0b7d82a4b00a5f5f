"""The driver's libraries where no runtime has put them into the container: below the driver's root, for one process.

They are linked into a folder of their own, which `LD_LIBRARY_PATH` may name. Refused: naming the node's own folder of
libraries, which holds its C library too, and that one does not go with the container's loader. NVIDIA's own programs
are run in the node's root instead (control.py), where the container's Python is not.
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
""" Where drivers put them, below their root. """
_CUDA = "libcuda.so.1"
_LIBRARY = re.compile(r"lib(cuda|nvidia-[a-z0-9-]+)\.so\.[0-9.]+")
_LINKS_MAX = 16


@contextlib.contextmanager
def linked(driver_root: Path) -> Iterator[Path | None]:
    """Offer a folder with links to them, for as long as the context lasts; None: there is no `libcuda.so.1`.

    Raises:
        OSError: no folder can be made.
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
    """Return what a link leads to where `root` is the root, as Debian's alternatives are absolute links."""
    for _ in range(_LINKS_MAX):
        if not path.is_symlink():
            break
        target = path.readlink()
        path = root / target.relative_to("/") if target.is_absolute() else path.parent / target
    return path
