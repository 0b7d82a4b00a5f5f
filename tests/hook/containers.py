"""Containers with simulated GPUs as the kubelet would start them, from kernel features alone: no runtime, no image.

A container gets what the device plugin injects (`orion.hook.simulated`), the slot's directory and the hook.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from orion import hook
from orion.hook import simulated
from testbed.images import Content, with_libraries
from tests.hook.harness import Machine
from tests.hook.scripted_client import DEADLINE, Client, eventually

ENTER = Path(__file__).with_name("enter_container.py")
UNSHARE = ("unshare", "--mount", "--pid", "--fork", "--kill-child=SIGKILL", sys.executable, str(ENTER))
PROGRAM = "/program"


def require_root() -> None:
    """Fail if this process cannot make containers. A skipped test must not look like a passed one."""
    if os.geteuid() != 0:
        pytest.fail("this test makes containers' namespaces, mounts and users: run it as root")


def scripted_files(machine: Machine) -> dict[str, Content]:
    """Files for the scripted client's image. The driver is not among them."""
    libraries = with_libraries(machine.program)
    return {PROGRAM: libraries.pop(str(machine.program)), **without_driver(libraries)}


def without_driver(libraries: Mapping[str, Content]) -> dict[str, Content]:
    return {path: content for path, content in libraries.items() if not path.endswith("/libcuda.so.1")}


def command_in(
    machine: Machine,
    files: Mapping[str, Content],
    command: list[str],
    *slots: str,
    user: int = 12345,
    environment: Mapping[str, str] | None = None,
) -> list[str]:
    """Return the command that runs a command in a new container with these slots, one per GPU ("": no slot)."""
    require_root()
    root = machine.folder / f"rootfs-{machine.next_number()}"
    for path, content in files.items():
        place = root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            place.write_bytes(content)
        else:
            assert isinstance(content, Path)
            shutil.copy(content, place)
    held = {uuid: slot for uuid, slot in zip(machine.uuids, slots, strict=False) if slot}
    needs = simulated.container_needs(machine.simulated_library, machine.state, list(held))
    mounts = [(str(mount.host_path), mount.container_path, mount.read_only) for mount in needs.mounts]
    mounts.append((str(machine.hook), hook.CONTAINER_LIBRARY, True))
    for uuid, slot in held.items():
        place_of_slot = f"{hook.CONTAINER_ROOT}/slots/{uuid}"
        mounts.append((str(machine.root / "gpus" / uuid / slot), place_of_slot, True))
    wanted = {
        "root": str(root),
        "mounts": mounts,
        "user": user,
        "command": command,
        "environment": {**needs.environment, "LD_PRELOAD": hook.CONTAINER_LIBRARY, **(environment or {})},
    }
    return [*UNSHARE, json.dumps(wanted)]


def process_in(unshare: subprocess.Popen[bytes]) -> int:
    """Return the host's process id of a container's process; it may not have executed the program yet."""
    children = Path(f"/proc/{unshare.pid}/task/{unshare.pid}/children")
    eventually(children.read_text, "the container has a process")
    return int(children.read_text())


def end_container(unshare: subprocess.Popen[bytes]) -> None:
    """Kill a container's process if it still runs, and wait until it has ended."""
    children = Path(f"/proc/{unshare.pid}/task/{unshare.pid}/children")
    with contextlib.suppress(ProcessLookupError, FileNotFoundError):
        for process in children.read_text().split():
            os.kill(int(process), signal.SIGKILL)
    unshare.kill()
    unshare.wait(DEADLINE)


class ContainedClient(Client):
    """A scripted client in a separate container; `pid` is its process id on the host."""

    def __init__(self, machine: Machine, *slots: str, user: int = 12345, **environment: str) -> None:
        command = command_in(machine, scripted_files(machine), [PROGRAM], *slots, user=user, environment=environment)
        complaints = machine.folder / f"contained-{machine.next_number()}"
        super().__init__(command, dict(os.environ), complaints)
        machine.adopt(self)
        self._host_pid = process_in(self.process)

    @property
    def pid(self) -> int:
        return self._host_pid

    def kill_inside(self) -> None:
        """Kill the process itself, as the kernel does when memory runs out."""
        os.kill(self._host_pid, signal.SIGKILL)

    def close(self) -> None:
        end_container(self.process)
        super().close()


def start_contained(machine: Machine, *slots: str, user: int = 12345) -> ContainedClient:
    """Start a client in a container and let it use its first GPU. The client has joined when this function returns."""
    client = ContainedClient(machine, *slots, user=user)
    client.must("init 0")
    gpu = next(number for number, slot in enumerate(slots) if slot)
    machine.until_joined(client, gpu=gpu)
    return client
