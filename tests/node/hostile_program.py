"""A hostile program in a pod, as root: `python hostile_program.py SECONDS NODE_ADDRESS METRICS_PORT...`.

For SECONDS, it attacks everything that a pod with a slot can see of Orion, of its node and of its neighbours.
It prints lines of JSON: `attacking`; `over`, with everything that it reached and must not reach; and `holding`, when
it has joined with invalid values in its pages and has begun as many joins as it may without finishing them.
An attack that succeeds does not harm this machine: it opens files without writing, and sends only signal 0.
"""

import contextlib
import ctypes
import glob
import json
import mmap
import os
import random
import signal
import socket
import stat
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.hook import hostile_client, hostile_root
from tests.node_agent.protocol_client import ProtocolClient, Refused, connect

ORION, LIBRARY = Path("/run/orion"), Path("/run/orion/lib/liborion_hook.so")
PRELOAD = Path("/etc/ld.so.preload")
""" Mounted if the pod has its slot by a claim. """
SLOTS = ORION / "slots"
ELSEWHERE = (
    "/run/orion/agent.sock",
    "/run/orion/gpus",
    "/run/orion/state.json",
    "/var/lib/orion",
    "/var/lib/kubelet",
    "/run/cdi",
    "/var/run/cdi",
    "/etc/cdi",
    "/run/containerd/containerd.sock",
    "/host",
    "/var/run/docker.sock",
)
""" Paths of Orion and of the node's administration outside a container. """
KERNEL = ("/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/proc/sys/kernel/modprobe", "/sys/power/state")
BLOCK_DEVICES = ((8, 0), (259, 0), (254, 0), (7, 0))
NVIDIA_CONTROL = (195, 255)

CHANGES: dict[str, Callable[[Path], object]] = {
    "chmod": lambda path: path.chmod(0o777),
    "chown": lambda path: os.chown(path, 1, 1),
    "times": os.utime,
    "unlink": os.unlink,
    "rename": lambda path: path.rename(path.with_suffix(".old")),
    "attribute": lambda path: os.setxattr(path, "user.a", b"b"),
    "write": lambda path: os.close(os.open(path, os.O_WRONLY)),
    "truncate": lambda path: os.truncate(path, 0),
    "link": lambda path: os.link(path, path.with_name("again")),
}
""" Changes that a file which is mounted read-only must not allow. """

_MS_REMOUNT, _MS_BIND, _MNT_DETACH = 32, 4096, 2
_CLONE_NEWNS, _CLONE_NEWUSER = 0x20000, 0x10000000
_OPEN_BY_HANDLE_AT = 304 if os.uname().machine == "x86_64" else 265
_ROOT_HANDLE = struct.pack("<IiQ", 8, 1, 2) + bytes(120)
""" A file handle of the root directory of ext4: inode 2. """
_HALF_JOINED, _SILENT = 300, 200

libc = ctypes.CDLL(None, use_errno=True)


def report(event: str, **what: object) -> None:
    """Print a line."""
    print(json.dumps({"event": event, **what}), flush=True)


def works(attempt: Callable[..., object], *arguments: object) -> bool:
    """Return whether an attempt raises nothing."""
    try:
        attempt(*arguments)
    except (OSError, ValueError):
        return False
    return True


def own_sockets(slot: Path) -> list[Path]:
    """Return the sockets of the slot."""
    return [slot / "agent.sock", slot / "notices.sock"]


def mounted_files(slot: Path) -> Iterator[str]:
    """Attack the hook and the slot's sockets through their mounts."""
    for path in (LIBRARY, *own_sockets(slot), PRELOAD):
        yield from (f"{name} of {path}" for name, change in CHANGES.items() if works(change, path))
    for folder in (slot, LIBRARY.parent, *ORION.glob("mps/*")):
        if works(lambda folder=folder: (folder / "file").touch()):
            yield f"a file in {folder}"
        if works(lambda folder=folder: (folder / "link").symlink_to("/")):
            yield f"a symbolic link in {folder}"
        if works(lambda folder=folder: os.mknod(folder / "device", stat.S_IFCHR | 0o666, os.makedev(1, 3))):
            yield f"a device in {folder}"


def remounted(slot: Path) -> Iterator[str]:
    """Try to make the mounts writable or to unmount them: as root here, and in namespaces of its own."""

    def mount(path: Path, what: str) -> Iterator[str]:
        name = os.fsencode(path)
        if libc.mount(b"none", name, None, _MS_REMOUNT | _MS_BIND, None) == 0 and works((path / "file").touch):
            yield f"{path} mounted again, {what}"
        if libc.umount2(name, _MNT_DETACH) == 0 and any(path.iterdir()):
            yield f"what {path} covers, {what}"

    yield from mount(slot, "as root")
    yield from mount(LIBRARY.parent, "as root")
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        found = []
        if libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNS) == 0:
            found = [*mount(slot, "in a namespace"), *mount(LIBRARY.parent, "in a namespace")]
        os.write(writing, json.dumps(found).encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with open(reading, "rb") as answer:
        yield from json.loads(answer.read() or b"[]")


def others(slot: Path) -> Iterator[str]:
    """Look for other slots, the agent's own socket and the node, by paths, processes and abstract sockets."""
    for path in ELSEWHERE:
        if os.path.lexists(path):
            yield path
    sockets = {path for path in ORION.rglob("*") if path.is_socket()} - set(own_sockets(slot))
    for pattern in (
        "/proc/[0-9]*/root",
        "/proc/[0-9]*/cwd",
        f"{slot}/..",
        f"{slot}/../..",
        "/proc/1/root/run/orion/..",
    ):
        for way in glob.glob(pattern):
            folders = (Path(way, each) for each in ("run/orion/gpus", "gpus", "var/lib/kubelet", "run/cdi"))
            sockets |= {path for folder in folders for path in folder.rglob("*")}
    yield from map(str, sockets)
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        name = line.split()[-1]
        if name.startswith("@") and works(_connect_abstract, name[1:]):
            yield f"abstract socket {name}"
    for process in filter(str.isdigit, os.listdir("/proc")):
        command = Path("/proc", process, "cmdline").read_bytes()
        if b"orion.cli" in command or b"kubelet" in command or b"workload" in command:
            yield f"process {process}: {command!r}"


def _connect_abstract(name: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.connect(f"\0{name}")


def machine(slot: Path) -> Iterator[str]:
    """Try to reach the host: its disks, its GPUs' control device, files by handle, the kernel's settings."""
    for kind, numbers in [(stat.S_IFBLK, each) for each in BLOCK_DEVICES] + [(stat.S_IFCHR, NVIDIA_CONTROL)]:
        path = f"/tmp/device-{numbers[0]}-{numbers[1]}"
        with contextlib.suppress(OSError):
            os.mknod(path, kind | 0o600, os.makedev(*numbers))
        if works(lambda path=path: os.close(os.open(path, os.O_RDONLY))):
            yield f"device {numbers}"
    for path in KERNEL:
        if works(lambda path=path: os.close(os.open(path, os.O_WRONLY))):
            yield path
    for file in (slot, LIBRARY):
        at = os.open(file, os.O_RDONLY)
        if libc.syscall(_OPEN_BY_HANDLE_AT, at, _ROOT_HANDLE, os.O_RDONLY) >= 0:
            yield f"a file by its handle, behind {file}"
        os.close(at)
    for process in (0, 1):  # processes of this container; for others, this program would have to know their IDs
        if libc.process_vm_readv(process, None, 0, None, 0, 0) > 0:
            yield f"memory of process {process}"


def ask_for_metrics(address: str, port: int, ended: threading.Event) -> None:
    """Request a program's metrics without end, and keep connections open that send nothing."""
    silent: list[socket.socket] = []
    while not ended.is_set():
        with contextlib.suppress(OSError):
            sock = socket.create_connection((address, port), 1)
            if len(silent) < 8:
                silent.append(sock)
                continue
            with sock:
                sock.settimeout(2)
                sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
                while sock.recv(65536):
                    pass
        for each in [each for each in silent if _has_ended(each)]:
            each.close()
            silent.remove(each)


def _has_ended(sock: socket.socket) -> bool:
    with contextlib.suppress(BlockingIOError):
        return sock.recv(1, socket.MSG_DONTWAIT) == b""
    return False


def attack(slot: Path, seconds: float) -> set[str]:
    """Repeat all attacks for `seconds`; return everything that was reached."""
    found: set[str] = set()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for reach in (mounted_files, remounted, others, machine):
            found.update(reach(slot))
        found.update(hostile_client.attack_pages(slot))
        found.update(hostile_root.reach_into_agent(slot))
        found.update(hostile_root.write_past_protection(slot))
        found.update(hostile_root.pose_as_neighbour(slot))
        hostile_root.spoil_modes(slot)
        hostile_client.attack_socket(slot)
        hostile_client.attack_joins(slot, 20)
        hostile_client.shout_hello(slot, 200)
    return found


@contextlib.contextmanager
def crowd(slot: Path) -> Iterator[int]:
    """Join without sending READY, as often as the slot permits, and open silent connections; yield how many joined."""
    with contextlib.ExitStack() as stack:
        joined = 0
        while not joined:  # the attacks may have used up the slot's rate limit for this second
            with contextlib.suppress(OSError, EOFError, Refused):
                for _ in range(_HALF_JOINED):
                    stack.enter_context(ProtocolClient(slot).join(ready=False))
                    joined += 1
            time.sleep(0.1)
        with contextlib.suppress(OSError):
            for _ in range(_SILENT):
                stack.enter_context(connect(slot, 0.2))
        yield joined


def join_with_invalid_pages(slot: Path) -> ProtocolClient:
    """Join, and fill the record page with the largest numbers and with invalid text."""
    while True:
        with contextlib.suppress(OSError, EOFError, Refused):
            client = ProtocolClient(slot).join()
            client.receive_message()
            # Overwrite everything after the header, including the client index that the agent wrote. The busy page
            # stays unchanged, because one of its bits says that the client is dead.
            client.record.memory[64:] = b"\xff" * (mmap.PAGESIZE - 64)
            return client
        time.sleep(0.1)  # the attacks have used up the slot's rate limit for this second


def main() -> None:
    """Attack, and then stay as a misbehaving client."""
    seconds, address, ports = float(sys.argv[1]), sys.argv[2], map(int, sys.argv[3:])
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    for ignored in (signal.SIGPIPE, signal.SIGIO):
        signal.signal(ignored, signal.SIG_IGN)
    (slot,) = SLOTS.iterdir()
    random.seed(1)
    ended = threading.Event()
    askers = [threading.Thread(target=ask_for_metrics, args=(address, port, ended)) for port in ports]
    with hostile_root.descriptors_in_flight() as in_flight:
        report("attacking", user=os.getuid(), in_flight=in_flight, preload=PRELOAD.exists())
        for asker in askers:
            asker.start()
        found = attack(slot, seconds)
        ended.set()
        for asker in askers:
            asker.join()
        report("over", reached=sorted(found))
        with join_with_invalid_pages(slot) as client, crowd(slot) as joined:
            report("holding", key=client.key, half_joined=joined)
            signal.pause()


if __name__ == "__main__":
    main()
