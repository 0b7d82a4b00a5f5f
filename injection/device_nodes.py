"""Mounts device nodes and the driver's files into a container, for container runtimes without GPU support.

Each library is mounted as a single file at the two paths that glibc searches by default: /usr/lib/x86_64-linux-gnu
(Debian's family) and /usr/lib64 (Red Hat's). The image's own libraries in these folders stay visible.

Rejected: LD_LIBRARY_PATH. If a pod or an image sets this variable, or a program clears it, the program does not find
the driver. Rejected: a file in /etc/ld.so.conf.d. It has no effect until ldconfig runs in the container.
"""

import os
import platform
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from orion.crds.node_configuration import NodeSettings
from orion.errors import Unavailable
from orion.injection.description import Description, DeviceNode, Mount
from orion.injection.snapshot import AdvertisedGPU

_NEEDED = ("nvidiactl", "nvidia-uvm")
_IF_PRESENT = ("nvidia-uvm-tools", "nvidia-modeset")

_LIBRARIES = re.compile(
    r"lib(cuda|cudadebugger|nvidia-(ml|cfg|ptxjitcompiler|nvvm|nvvm70|gpucomp|pkcs11|pkcs11-openssl3|opencl))\.so\.[0-9.]+"
)
""" Libraries of the driver that CUDA programs and the driver itself load, by soname or by full version. """

_MACHINE = platform.machine()
_FOLDERS = (
    f"usr/lib/{_MACHINE}-linux-gnu", "usr/lib64", "usr/lib", "lib64",
    "usr/local/nvidia/lib64", "home/kubernetes/bin/nvidia/lib64", "opt/nvidia/lib64",
)  # fmt: skip
""" Where drivers install their libraries, relative to the driver's root. """

_IN_CONTAINER = (f"/usr/lib/{_MACHINE}-linux-gnu", "/usr/lib64")


def add(
    given: Description,
    gpus: Sequence[AdvertisedGPU],
    settings: NodeSettings,
    host: Path,
) -> None:
    """Add the GPUs' device nodes, the nodes that all GPUs share, and the driver's libraries.

    Raises:
        Unavailable: a device node or the driver's library does not exist.
    """
    devices = _device_folder(Path(settings.driver_root), host)
    wanted = [*(f"nvidia{gpu.minor}" for gpu in gpus), *_NEEDED]
    for name in wanted:
        if not (host / (devices / name).relative_to("/")).exists():
            raise Unavailable(f"the node has no {devices / name}: check the driver and driverRoot")
    wanted += [name for name in _IF_PRESENT if (host / (devices / name).relative_to("/")).exists()]
    for name in wanted:
        given.device_nodes.append(DeviceNode(devices / name, f"/dev/{name}"))
    for source, name in _libraries(Path(settings.driver_root), host):
        for folder in _IN_CONTAINER:
            given.mounts.append(Mount(source, f"{folder}/{name}"))


def _device_folder(driver_root: Path, host: Path) -> Path:
    """Return the folder of device nodes: in the driver's root if a containerised driver made them, else /dev."""
    own = driver_root / "dev"
    return own if (host / own.relative_to("/") / "nvidiactl").exists() else Path("/dev")


def _libraries(driver_root: Path, host: Path) -> Iterator[tuple[Path, str]]:
    """Yield each library's path on the node, and a name by which programs load it."""
    for folder in _FOLDERS:
        seen = host / driver_root.relative_to("/") / folder
        try:
            names = sorted(name for name in os.listdir(seen) if _LIBRARIES.fullmatch(name))
        except OSError:
            continue
        if any(name.startswith("libcuda.so.") for name in names):
            for name in names:
                yield _on_node(seen / name, host), name
            return
    raise Unavailable(f"no libcuda.so is below {driver_root} on the node: set driverRoot to the driver's root")


def _on_node(seen: Path, host: Path) -> Path:
    """Return a file's path on the node, with links resolved. The result may lie outside `host`."""
    real = seen.resolve()
    return Path("/") / real.relative_to(host.resolve()) if real.is_relative_to(host.resolve()) else real
