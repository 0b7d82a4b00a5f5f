"""A client for tests of the agent: it joins over the real socket and maps the real pages, without hook and CUDA."""

import array
import mmap
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from ctypes import sizeof
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from orion.hook import join, layout
from orion.hook.join import Welcome
from tests.waiting import DEADLINE

Answer = Welcome | join.Refused | join.Neighbours | join.Gone | join.Knowledge | join.Job | join.Park
ANSWERS: dict[int, type[Answer]] = {
    join.MessageType.WELCOME: Welcome,
    join.MessageType.REFUSED: join.Refused,
    join.MessageType.NEIGHBOURS: join.Neighbours,
    join.MessageType.GONE: join.Gone,
    join.MessageType.KNOWLEDGE: join.Knowledge,
    join.MessageType.JOB: join.Job,
    join.MessageType.PARK: join.Park,
}


class Refused(Exception):
    def __init__(self, message: join.Refused) -> None:
        super().__init__(message.text.decode())
        self.code = join.Refusal(message.code)
        self.retry_ms: int = message.retry_ms


def head(kind: int) -> join.Message:
    return join.Message(join.MESSAGE_MAGIC, kind)


def hello(
    flags: int = 0,
    place: int = 0,
    generation: int = 0,
    oldest: int = layout.LAYOUT_OLDEST,
    newest: int = layout.LAYOUT_NEWEST,
    command: bytes = b"test",
) -> bytes:
    message = join.Hello(
        head(join.MessageType.HELLO), oldest, newest, flags, os.getpid(), place, generation, command, b"0"
    )
    return bytes(message)


def connect(directory: Path, timeout: float = DEADLINE) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.settimeout(timeout)
    folder = os.open(directory, os.O_PATH)
    try:
        sock.connect(f"/proc/self/fd/{folder}/agent.sock")
    except BaseException:
        sock.close()
        raise
    finally:
        os.close(folder)
    return sock


def connect_as_another_process(directory: Path) -> socket.socket:
    """Connect so that the agent sees the process id of a child, as for another rank of a job."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    source = (
        "import os, socket, sys; sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
        "folder = os.open(sys.argv[1], os.O_PATH); sock.connect(f'/proc/self/fd/{folder}/agent.sock')\n"
        "socket.send_fds(socket.socket(fileno=int(sys.argv[2])), [b'1'], [sock.fileno()])"
    )
    with here, there:
        command = [sys.executable, "-IS", "-c", source, str(directory), str(there.fileno())]
        subprocess.run(command, check=True, pass_fds=[there.fileno()])
        _, (descriptor,), _, _ = socket.recv_fds(here, 1, 1)
    sock = socket.socket(fileno=descriptor)
    sock.settimeout(DEADLINE)
    return sock


def receive(sock: socket.socket) -> tuple[Answer, list[int]]:
    data, fds, _, _ = socket.recv_fds(sock, join.MESSAGE_MAX, 253)
    if not data:
        raise EOFError("the agent ended the connection")
    structure = ANSWERS[join.Message.from_buffer_copy(data).type]
    assert len(data) == sizeof(structure)
    answer: Answer = structure.from_buffer_copy(data)
    return answer, fds


@dataclass
class Page:
    fd: int
    memory: mmap.mmap

    @classmethod
    def of(cls, fd: int, writable: bool) -> Self:
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        return cls(fd, mmap.mmap(fd, layout.PAGE_SIZE, mmap.MAP_SHARED, protection))

    def get(self, structure: type, name: str) -> int:
        attribute = getattr(structure, name)
        return int.from_bytes(self.memory[attribute.offset : attribute.offset + attribute.size], "little")

    def set(self, structure: type, name: str, value: int) -> None:
        attribute = getattr(structure, name)
        code = {4: "<I", 8: "<Q"}[attribute.size]
        struct.pack_into(code, self.memory, attribute.offset, value)

    def close(self) -> None:
        self.memory.close()
        os.close(self.fd)


def current_policy(page: Page) -> layout.Policy:
    whole = layout.PolicyPage.from_buffer_copy(page.memory[:])
    policy: layout.Policy = whole.copy[whole.current]
    return policy


def current_grant(page: Page) -> layout.Grant:
    whole = layout.GrantPage.from_buffer_copy(page.memory[:])
    grant: layout.Grant = whole.copy[whole.current]
    return grant


@dataclass(eq=False)
class ProtocolClient:
    """Call `join` to join the slot in `directory`. As a context manager, the client closes everything at the end."""

    directory: Path
    connect: Callable[[Path], socket.socket] = connect
    sock: socket.socket = field(init=False)
    flags: int = 0
    """ Of its first HELLO. """
    neighbours: dict[tuple[int, int], int] = field(default_factory=dict)
    knowledge: bytes = b""
    """ The content of the last KNOWLEDGE message. """
    jobs: list[tuple[int, Page]] = field(default_factory=list)
    """ Rank and page of each JOB message. """

    def join(self, ready: bool = True, **fields: int) -> Self:
        self.sock = self.connect(self.directory)
        self.flags = fields.get("flags", 0)
        self.sock.send(hello(**fields))  # type: ignore[arg-type]
        answer, fds = receive(self.sock)
        if isinstance(answer, join.Refused):
            self.sock.close()
            raise Refused(answer)
        assert isinstance(answer, Welcome)
        assert len(fds) == 4
        self.welcome = answer
        self.policy, self.grant = Page.of(fds[0], False), Page.of(fds[1], False)
        self.busy, self.record = Page.of(fds[2], True), Page.of(fds[3], True)
        if ready:
            self.ready()
        return self

    @property
    def key(self) -> tuple[int, int]:
        return self.welcome.client_index, self.welcome.generation

    def ready(self) -> None:
        self.sock.send(bytes(join.Ready(head(join.MessageType.READY))))

    def receive_message(self) -> Answer:
        """Receive one NEIGHBOURS, GONE, KNOWLEDGE or JOB message, and apply it."""
        answer, fds = receive(self.sock)
        if isinstance(answer, join.Knowledge):
            self.knowledge = os.pread(fds[0], 1 << 20, 0)
            os.close(fds[0])
        if isinstance(answer, join.Job):
            self.jobs.append((answer.rank, Page.of(fds[0], True)))
        if isinstance(answer, join.Neighbours):
            assert len(fds) == answer.count
            for place, fd in zip(answer.places[: answer.count], fds, strict=True):
                self.neighbours[(place.client_index, place.generation)] = fd
        elif isinstance(answer, join.Gone):
            for place in answer.places[: answer.count]:
                os.close(self.neighbours.pop((place.client_index, place.generation)))
        return answer

    def receive_job(self) -> tuple[int, Page]:
        """Receive messages until the first JOB; return its rank and its page."""
        while not self.jobs:
            self.receive_message()
        return self.jobs[0]

    def receive_until(self, keys: set[tuple[int, int]]) -> None:
        """Receive messages until `neighbours` has exactly these hp clients."""
        while self.neighbours.keys() != keys:
            self.receive_message()

    def return_to_agent(self) -> Welcome:
        """Connect again, as after a restart of the agent; bring the job page, if there is one."""
        self.ask_to_return()
        return self.returned()

    def ask_to_return(self) -> None:
        """Connect again and send HELLO; do not wait for the answer."""
        self.sock.close()
        self.sock = self.connect(self.directory)
        message = hello(join.HELLO_RETURNS | self.flags, *self.key)
        job = [self.jobs[0][1].fd] if self.jobs else []
        socket.send_fds(self.sock, [message], [self.busy.fd, self.record.fd, *job])

    def returned(self) -> Welcome:
        """Receive the answer to `ask_to_return`."""
        answer, fds = receive(self.sock)
        if isinstance(answer, join.Refused):
            raise Refused(answer)
        assert isinstance(answer, Welcome)
        assert len(fds) == 2
        self.policy.close()
        self.grant.close()
        self.policy, self.grant = Page.of(fds[0], False), Page.of(fds[1], False)
        return answer

    def suspect(self, key: tuple[int, int]) -> None:
        with connect(self.directory) as sock:
            sock.send(bytes(join.Suspect(head(join.MessageType.SUSPECT), *key)))
            assert sock.recv(1) == b""

    def close(self) -> None:
        self.sock.close()
        for page in (self.policy, self.grant, self.busy, self.record, *(page for _, page in self.jobs)):
            page.close()
        for fd in self.neighbours.values():
            os.close(fd)
        self.neighbours.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def send_with_fds(sock: socket.socket, data: bytes, fds: list[int]) -> None:
    sock.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
