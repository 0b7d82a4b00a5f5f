"""Agents that are absent, not ready, faulty or dishonest: the process runs in any case, and reports the fault once."""

import array
import os
import shutil
import signal
import socket
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orion.hook import join, layout
from tests.hook.fake_agent import SIZE_SEALS, FakeAgent, page, seal
from tests.hook.harness import Machine
from tests.hook.scripted_client import Client, eventually

pytestmark = pytest.mark.quiet


@pytest.fixture
def fake(bare_machine: Machine) -> Iterator[Callable[[Callable[[socket.socket], None]], Path]]:
    """Starts a fake agent; returns the root for its clients."""
    agents: list[FakeAgent] = []

    def start(serve: Callable[[socket.socket], None]) -> Path:
        folder = bare_machine.root / "gpus" / bare_machine.uuids[0] / "be-0"
        folder.mkdir(parents=True)
        agents.append(FakeAgent(folder, serve))
        return bare_machine.client_root("be-0")

    yield start
    for agent in agents:
        agent.close()


def runs_unmanaged(client: Client, sentence: str, within: float = 1.0) -> None:
    """Check that the process works without delay, and prints the sentence once however long it runs."""
    client.must("init 0")
    began = time.monotonic()
    client.must("run 10 10")
    assert time.monotonic() - began < within
    eventually(lambda: client.said, "something is said")
    client.do("stamps 0.2 100")
    client.must("reset")
    client.must("run 10 10")
    assert [sentence in line for line in client.said] == [True], client.said
    client.send("exit")
    assert client.reap() == 0


NO_AGENT = "no node agent answers for this GPU"
NOT_UNDERSTOOD = "the node agent's answer is not understood"


def test_no_root_at_all(bare_machine: Machine) -> None:
    runs_unmanaged(bare_machine.start_in(bare_machine.folder / "nowhere"), NO_AGENT)


def test_a_root_without_a_slot_of_this_gpu(bare_machine: Machine) -> None:
    runs_unmanaged(bare_machine.start_in(bare_machine.client_root("")), NO_AGENT)


def test_a_slot_without_a_socket(bare_machine: Machine) -> None:
    (bare_machine.root / "gpus" / bare_machine.uuids[0] / "be-0").mkdir(parents=True)
    runs_unmanaged(bare_machine.start_in(bare_machine.client_root("be-0")), NO_AGENT)


def test_a_plain_file_instead_of_a_socket(bare_machine: Machine) -> None:
    folder = bare_machine.root / "gpus" / bare_machine.uuids[0] / "be-0"
    folder.mkdir(parents=True)
    (folder / "agent.sock").write_text("")
    runs_unmanaged(bare_machine.start_in(bare_machine.client_root("be-0")), NO_AGENT)


def test_a_directory_that_may_not_be_entered(bare_machine: Machine) -> None:
    # File modes do not restrict root. If these tests run as root, the client runs as another user.
    root = bare_machine.client_root("be-0")
    (root / "slots").chmod(0)
    if os.geteuid() != 0:
        runs_unmanaged(bare_machine.start_in(root), NO_AGENT)
        return
    reachable = bare_machine.folder / "build"
    for name in ("liborion_hook.so", "sim/libcuda.so.1", "test/client_scripted"):
        (reachable / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(bare_machine.build / name, reachable / name)
    (reachable / "state").mkdir()
    (reachable / "state").chmod(0o777)
    bare_machine.folder.chmod(0o755)
    environment = {
        "ORION_SIM_STATE": str(reachable / "state"),
        "LD_PRELOAD": str(reachable / "liborion_hook.so"),
        "LD_LIBRARY_PATH": str(reachable / "sim"),
    }
    bare_machine.build = reachable
    unprivileged = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    runs_unmanaged(bare_machine.start_in(root, *unprivileged, **environment), NO_AGENT)


def test_a_read_only_directory_is_enough(machine: Machine) -> None:
    root = machine.client_root("be-0")
    (root / "slots").chmod(stat.S_IRUSR | stat.S_IXUSR)
    root.chmod(stat.S_IRUSR | stat.S_IXUSR)
    client = machine.start_in(root)
    client.must("init 0")
    machine.until_joined(client)
    client.must("run 1 10")
    assert client.said == []


def test_a_root_with_a_path_longer_than_a_socket_address(machine: Machine) -> None:
    long = machine.folder / ("a" * 100) / ("b" * 100)
    long.mkdir(parents=True)
    (long / "root").symlink_to(machine.client_root("be-0"))
    client = machine.start_in(long / "root")
    client.must("init 0")
    machine.until_joined(client)
    assert client.said == []


def welcome(machine: Machine, wrong_page: int = -1, count: int = 4, **wrong: int) -> Callable[[socket.socket], None]:
    """Answer HELLO with WELCOME and pages, one of which is faulty."""

    def serve(connection: socket.socket) -> None:
        connection.recv(join.MESSAGE_MAX)
        fds = [page(machine, kind, **(wrong if kind == wrong_page else {})) for kind in (1, 2, 3, 4)][:count]
        answer = join.Welcome(
            join.Message(join.MESSAGE_MAGIC, join.MessageType.WELCOME),
            wrong.get("welcome_layout", layout.LAYOUT_NEWEST),
            wrong.get("role", 2),
        )
        connection.sendmsg([bytes(answer)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
        for fd in fds:
            os.close(fd)

    return serve


WRONG = [
    pytest.param({"layout": 0}, id="layout-too-old"),
    pytest.param({"layout": layout.LAYOUT_VERSION + 2}, id="layout-too-new"),
    pytest.param({"magic": 1}, id="magic"),
    pytest.param({"kind": 9}, id="kind"),
    pytest.param({"gpu": 1}, id="gpu"),
    pytest.param({"seals": 0}, id="unsealed"),
    pytest.param({"seals": 0x4}, id="shrinkable"),
    pytest.param({"size": 0}, id="empty"),
    pytest.param({"size": 8192}, id="long"),
    pytest.param({"size": 100}, id="short"),
]


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("which", [layout.PageKind.POLICY, layout.PageKind.BUSY])
def test_a_faulty_page(bare_machine: Machine, fake: Callable[..., Path], which: int, wrong: dict[str, int]) -> None:
    root = fake(welcome(bare_machine, which, **wrong))
    runs_unmanaged(bare_machine.start_in(root), NOT_UNDERSTOOD)


@pytest.mark.parametrize(
    "wrong", [{"welcome_layout": layout.LAYOUT_NEWEST + 1}, {"role": 7}, {"count": 3}, {"count": 0}], ids=str
)
def test_a_faulty_welcome(bare_machine: Machine, fake: Callable[..., Path], wrong: dict[str, int]) -> None:
    runs_unmanaged(bare_machine.start_in(fake(welcome(bare_machine, **wrong))), NOT_UNDERSTOOD)


def test_a_descriptor_that_is_no_page(bare_machine: Machine, fake: Callable[..., Path]) -> None:
    def serve(connection: socket.socket) -> None:
        fds = [os.open("/dev/zero", os.O_RDWR), *os.pipe(), os.open("/", os.O_RDONLY)]
        answer = join.Welcome(join.Message(join.MESSAGE_MAGIC, join.MessageType.WELCOME), 1, 2)
        connection.sendmsg([bytes(answer)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
        for fd in fds:
            os.close(fd)

    runs_unmanaged(bare_machine.start_in(fake(serve)), NOT_UNDERSTOOD)


def test_the_hook_prints_the_reason_of_a_refusal(bare_machine: Machine, fake: Callable[..., Path]) -> None:
    def serve(connection: socket.socket) -> None:
        head = join.Message(join.MESSAGE_MAGIC, join.MessageType.REFUSED)
        connection.send(bytes(join.Refused(head, join.Refusal.FULL, 20, b"this slot is full")))

    root = fake(serve)
    runs_unmanaged(bare_machine.start_in(root), "which runs unmanaged: this slot is full")


def test_garbage_half_messages_and_floods_of_them(bare_machine: Machine, fake: Callable[..., Path]) -> None:
    def serve(connection: socket.socket) -> None:
        head = bytes(join.Message(join.MESSAGE_MAGIC, join.MessageType.WELCOME))
        neighbours = bytes(join.Message(join.MESSAGE_MAGIC, join.MessageType.NEIGHBOURS))
        for message in (b"x", b"\xff" * 4096, head, head[:5], neighbours + b"\xff" * 8, neighbours + b"\xff" * 100):
            connection.send(message)
        refused = join.Message(join.MESSAGE_MAGIC, join.MessageType.REFUSED)
        connection.send(bytes(refused))
        for number in range(500):
            connection.send(os.urandom(number))
        connection.close()

    client = bare_machine.start_in(fake(serve))
    client.must("init 0")
    client.must("run 10 10")
    client.must("reset")
    client.must("run 10 10")
    assert len(client.said) <= 1
    client.send("exit")
    assert client.reap() == 0


def test_an_agent_that_never_answers_delays_the_first_launch_boundedly(
    bare_machine: Machine, fake: Callable[..., Path]
) -> None:
    client = bare_machine.start_in(fake(lambda connection: None))
    client.must("init 0")
    first = client.must("run 1 10")
    assert first.seconds < 0.6, "longer than the 0.25 s that a first launch waits for the agent"
    assert client.must("run 1 10").seconds < 0.1
    eventually(lambda: client.said, "the client reports that no agent answers", 10)
    assert len(client.said) == 1
    assert NO_AGENT in client.said[0]


def test_a_socket_whose_backlog_is_full(bare_machine: Machine) -> None:
    folder = bare_machine.root / "gpus" / bare_machine.uuids[0] / "be-0"
    folder.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(str(folder / "agent.sock"))
        listening.listen(0)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as first:
            first.connect(str(folder / "agent.sock"))
            client = bare_machine.start_in(bare_machine.client_root("be-0"))
            client.must("init 0")
            assert client.must("run 1 10").seconds < 0.6
            assert client.must("run 1 10").seconds < 0.1


def test_a_stopped_agent_delays_no_client(machine: Machine) -> None:
    os.kill(machine.agent_pid, signal.SIGSTOP)
    try:
        client = machine.start_in(machine.client_root("be-0"))
        client.must("init 0")
        assert client.must("run 1 10").seconds < 0.6
    finally:
        os.kill(machine.agent_pid, signal.SIGCONT)
    machine.until_joined(client)


def test_a_neighbour_page_of_garbage_holds_no_client_for_ever(bare_machine: Machine, fake: Callable[..., Path]) -> None:
    # The agent sends a neighbour's page. Its state is invalid, counts as busy, and never changes.
    def serve(connection: socket.socket) -> None:
        connection.recv(join.MESSAGE_MAX)
        policy = page(bare_machine, 1, seals=0)
        whole = layout.PolicyPage()
        whole.header = layout.PageHeader(layout.PAGE_MAGIC, 1, 1, bare_machine.uuids[0].encode())
        whole.hp_clients = 1
        whole.current = 0xFFFFFFFE
        whole.copy[0].kind = 1
        whole.copy[0].window_ns = 2**64 - 1
        whole.copy[0].stall_ns = 300_000_000
        os.pwrite(policy, bytes(whole), 0)
        seal(policy, SIZE_SEALS)
        fds = [policy, *(page(bare_machine, kind) for kind in (2, 3, 4))]
        head = join.Message(join.MESSAGE_MAGIC, join.MessageType.WELCOME)
        rights = array.array("i", fds)
        connection.sendmsg([bytes(join.Welcome(head, 1, 2))], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        neighbour = page(bare_machine, 3, seals=0)
        os.pwrite(neighbour, b"\xee" * 4, 64)
        seal(neighbour, SIZE_SEALS)
        head = join.Message(join.MESSAGE_MAGIC, join.MessageType.NEIGHBOURS)
        news = join.Neighbours(head, 2)
        news.places[0] = join.Place(5, 1)
        news.places[1] = join.Place(99999, 1)
        rights = array.array("i", [neighbour, neighbour])
        connection.sendmsg([bytes(news)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])

    client = bare_machine.start_in(fake(serve))
    client.must("init 0")
    assert client.must("run 1 10").seconds < 1.0
    assert client.must("run 10 10").seconds < 0.2
    assert len(client.said) == 1
