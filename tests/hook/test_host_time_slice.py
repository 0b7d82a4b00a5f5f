"""Time slices of be and hp, in real processes: a fake kernel driver behind the hook logs the slices that are set."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.hook.harness import Machine
from tests.hook.scripted_client import Client, eventually

SOURCE = Path(__file__).parents[1] / "measurements" / "fake_kernel_driver.c"
CUDA, SHORT, LONG = "2048", "200", "10000"

CALLS = """
import errno, fcntl, os, pty, struct, termios
master, slave = pty.openpty()
fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
print(struct.unpack("HHHH", fcntl.ioctl(slave, termios.TIOCGWINSZ, bytes(8))), os.isatty(slave))
reader, writer = os.pipe()
os.write(writer, b"abc")
print(struct.unpack("i", fcntl.ioctl(reader, termios.FIONREAD, bytes(4))), os.isatty(reader))
allocate = 3 << 30 | 48 << 16 | ord("F") << 8 | 0x2B
for file, request in ((reader, termios.TIOCGWINSZ), (reader, allocate), (999, termios.FIONREAD)):
    try:
        fcntl.ioctl(file, request, bytes(48))
    except OSError as error:
        print(errno.errorcode[error.errno])
if os.fork() == 0:
    print(struct.unpack("i", fcntl.ioctl(reader, termios.FIONREAD, bytes(4))), flush=True)
    os._exit(0)
os.wait()
"""


class Groups:
    """Clients with a fake kernel driver, and the slices that it was asked to set."""

    def __init__(self, machine: Machine, folder: Path) -> None:
        self._machine, self._folder = machine, folder
        self._driver = folder / "fake_kernel_driver.so"
        command = ["gcc", "-std=gnu11", "-shared", "-fPIC", str(SOURCE), "-o", str(self._driver)]
        subprocess.run(command, check=True)

    def start(self, slot: str, log_name: str = "") -> Client:
        log = str(self._folder / (log_name or slot))
        preload = f"{self._machine.hook} {self._driver}"
        root = self._machine.client_root(slot)
        client = self._machine.start_in(root, LD_PRELOAD=preload, FAKE_KERNEL_DRIVER_LOG=log)
        client.must("init 0")
        self._machine.until_joined(client)
        return client

    def slices(self, slot: str) -> list[str]:
        return (self._folder / slot).read_text().split()

    def until(self, client: Client, slot: str, slice_us: str) -> None:
        def is_set() -> bool:
            client.must("run 20 500")  # the agent sees at its looks that the client works
            return self.slices(slot)[-1] == slice_us

        eventually(is_set, f"the slice of {slot} is {slice_us} us")


@pytest.fixture
def groups(machine: Machine, tmp_path: Path) -> Groups:
    return Groups(machine, tmp_path)


def test_the_slice_of_the_only_active_be_client_is_short_beside_an_hp(machine: Machine, groups: Groups) -> None:
    machine.agent.set_policy(machine.uuids[0], be_slice_us=200)
    be = groups.start("be-0")
    hp = groups.start("hp-0")
    groups.until(be, "be-0", SHORT)
    second = groups.start("be-1")
    second.send("run 100000000 200")  # until it is killed
    groups.until(be, "be-0", CUDA)
    second.kill()
    groups.until(be, "be-0", SHORT)
    hp.must("run 1 10")
    hp.close()
    groups.until(be, "be-0", CUDA)
    assert groups.slices("be-0") == [CUDA, SHORT, CUDA, SHORT, CUDA]
    assert groups.slices("hp-0") == [CUDA]


def test_the_slice_of_the_only_hp_client_is_long_beside_be(machine: Machine, groups: Groups) -> None:
    machine.agent.set_policy(machine.uuids[0], hp_slice_us=10_000)
    hp = groups.start("hp-0")
    hp.must("run 1 10")
    be = groups.start("be-0")
    groups.until(hp, "hp-0", LONG)
    second = groups.start("hp-0", "second-hp")
    groups.until(hp, "hp-0", CUDA)
    second.kill()
    groups.until(hp, "hp-0", LONG)
    be.close()
    groups.until(hp, "hp-0", CUDA)
    assert groups.slices("hp-0") == [CUDA, LONG, CUDA, LONG, CUDA]
    assert groups.slices("be-0") == [CUDA]


def test_the_policy_chooses_the_slice(machine: Machine, groups: Groups) -> None:
    be, _hp = groups.start("be-0"), groups.start("hp-0")
    for changes, slice_us in (
        ({"be_slice_us": 200}, SHORT),
        ({"be_slice_us": 0}, CUDA),
        ({"be_slice_us": 500}, "500"),
        ({"policy": "none"}, CUDA),
        ({"policy": "gate"}, "500"),
    ):
        machine.agent.set_policy(machine.uuids[0], **changes)
        groups.until(be, "be-0", slice_us)


def test_other_calls_of_ioctl_are_the_same_under_the_hook(machine: Machine) -> None:
    expected = None
    for preload in ({}, {"LD_PRELOAD": str(machine.hook)}):
        command = [sys.executable, "-u", "-c", CALLS]  # unbuffered: the forked child would print the buffer again
        done = subprocess.run(command, env=machine.environment | preload, capture_output=True, text=True, check=True)
        assert done.stderr == ""
        expected = expected or done.stdout
        assert done.stdout == expected
    assert expected is not None
    assert expected.splitlines() == ["(24, 80, 0, 0) True", "(3,) False", "ENOTTY", "ENOTTY", "EBADF", "(3,)"]
