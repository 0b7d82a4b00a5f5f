"""Containers of simulated GPUs as the kubelet would start them, made of the kernel's parts alone: no runtime, no image.

What a container gets is what the device plugin hands over (`orion.hook.simulated`), the slot's directory and the hook.
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
from tests.hook.harness import Machine
from tests.hook.scripted_client import DEADLINE, Client, eventually
from tools.cluster.images import Content, with_libraries

ENTER = Path(__file__).with_name("enter_container.py")
UNSHARE = ("unshare", "--mount", "--pid", "--fork", "--kill-child=SIGKILL", sys.executable, str(ENTER))
PROGRAM = "/program"


def require_root() -> None:
    """Fail where no container can be made: a test that did not run must not read as passed."""
    if os.geteuid() != 0:
        pytest.fail("this test makes containers' namespaces, mounts and users: run it as root")


def scripted_files(machine: Machine) -> dict[str, Content]:
    """The image of the scripted client: its driver is not part of it."""
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
    """Return what starts a command in a new container that has these slots, one a GPU ("" for none of it)."""
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
    """Return what the host calls a container's process; it may not be the program yet."""
    children = Path(f"/proc/{unshare.pid}/task/{unshare.pid}/children")
    eventually(children.read_text, "the container has a process")
    return int(children.read_text())


def end_container(unshare: subprocess.Popen[bytes]) -> None:
    """Kill a container's process if it still runs, and wait until it is gone."""
    children = Path(f"/proc/{unshare.pid}/task/{unshare.pid}/children")
    with contextlib.suppress(ProcessLookupError, FileNotFoundError):
        for process in children.read_text().split():
            os.kill(int(process), signal.SIGKILL)
    unshare.kill()
    unshare.wait(DEADLINE)


class ContainedClient(Client):
    """A scripted client in a container of its own; `pid` is what the host calls its process."""

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
        """Kill the process itself, as the kernel would for want of memory."""
        os.kill(self._host_pid, signal.SIGKILL)

    def close(self) -> None:
        end_container(self.process)
        super().close()


def start_contained(machine: Machine, *slots: str, user: int = 12345) -> ContainedClient:
    """Start a client in a container and let it use the first GPU that it has; it has joined when this returns."""
    client = ContainedClient(machine, *slots, user=user)
    client.must("init 0")
    gpu = next(number for number, slot in enumerate(slots) if slot)
    machine.until_joined(client, gpu=gpu)
    return client
