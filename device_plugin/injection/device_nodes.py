"""By device nodes and the driver's files, mounted by us: for a runtime that knows nothing of GPUs.

Where the loader finds the libraries: at the two places where glibc looks without being told, /usr/lib/x86_64-linux-gnu
(Debian's family) and /usr/lib64 (Red Hat's), file by file, so that the image's own libraries there stay. Refused:
LD_LIBRARY_PATH, since a pod or an image that sets it loses the driver, as do programs that clear it; and a line in
/etc/ld.so.conf.d, which only counts once ldconfig has run in the container.
"""

import os
import platform
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from orion.crds.node_configuration import NodeSettings
from orion.device_plugin.errors import HostRefused
from orion.device_plugin.kubelet import api_pb2
from orion.device_plugin.slots import Resource
from orion.device_plugin.snapshot import AdvertisedGPU

_NEEDED = ("nvidiactl", "nvidia-uvm")
_WHERE_THERE = ("nvidia-uvm-tools", "nvidia-modeset")

_LIBRARIES = re.compile(
    r"lib(cuda|cudadebugger|nvidia-(ml|cfg|ptxjitcompiler|nvvm|nvvm70|gpucomp|pkcs11|pkcs11-openssl3|opencl))\.so\.[0-9.]+"
)
""" What CUDA programs load of the driver, by soname and by full version: it loads its own parts by either. """

_MACHINE = platform.machine()
_FOLDERS = (
    f"usr/lib/{_MACHINE}-linux-gnu", "usr/lib64", "usr/lib", "lib64",
    "usr/local/nvidia/lib64", "home/kubernetes/bin/nvidia/lib64", "opt/nvidia/lib64",
)  # fmt: skip
""" Where drivers put their libraries, below the driver's root. """

_IN_CONTAINER = (f"/usr/lib/{_MACHINE}-linux-gnu", "/usr/lib64")


def add(
    answer: api_pb2.ContainerAllocateResponse,
    _: Resource,
    gpus: Sequence[AdvertisedGPU],
    settings: NodeSettings,
    host: Path,
) -> None:
    """Add the GPUs' nodes, those that all of them share, and the driver's libraries.

    Raises:
        HostRefused: a node or the driver's library is not there.
    """
    devices = _device_folder(Path(settings.driver_root), host)
    wanted = [*(f"nvidia{gpu.minor}" for gpu in gpus), *_NEEDED]
    for name in wanted:
        if not (host / (devices / name).relative_to("/")).exists():
            raise HostRefused(f"the node has no {devices / name}: is the driver loaded, and driverRoot right?")
    wanted += [name for name in _WHERE_THERE if (host / (devices / name).relative_to("/")).exists()]
    for name in wanted:
        answer.devices.add(container_path=f"/dev/{name}", host_path=str(devices / name), permissions="rw")
    for source, name in _libraries(Path(settings.driver_root), host):
        for folder in _IN_CONTAINER:
            answer.mounts.add(container_path=f"{folder}/{name}", host_path=str(source), read_only=True)


def _device_folder(driver_root: Path, host: Path) -> Path:
    """Return the node's folder of device nodes: the driver's own where a containerised one has made them there."""
    own = driver_root / "dev"
    return own if (host / own.relative_to("/") / "nvidiactl").exists() else Path("/dev")


def _libraries(driver_root: Path, host: Path) -> Iterator[tuple[Path, str]]:
    """Yield each library's file on the node and a name that programs look it up by."""
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
    raise HostRefused(f"no libcuda.so is below {driver_root} on the node: driverRoot says where the driver lies")


def _on_node(seen: Path, host: Path) -> Path:
    """Return a file's path as the node has it, links followed; a link that leads out of `host` is the node's own."""
    real = seen.resolve()
    return Path("/") / real.relative_to(host.resolve()) if real.is_relative_to(host.resolve()) else real
