"""The program that the container runtime runs before the start of a container that must not run without an agent."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from orion.node_agent.api.client import AgentClient
from tests.hook.fake_agent import FakeAgent
from tests.hook.harness import Machine
from tests.waiting import DEADLINE, eventually

MANY_SECONDS = "50"
STATE = b'{"ociVersion": "1.0.2", "status": "creating"}'

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(c_build: Path) -> Iterator[Start]:
    """Starts the program as a runtime does: with the container's state on its standard input."""
    started = []

    def begin(*arguments: str | Path) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        process = subprocess.Popen([c_build / "orion-await-agent", *arguments], stdin=pipe, stdout=pipe, stderr=pipe)
        started.append(process)
        assert process.stdin is not None
        process.stdin.write(STATE)
        process.stdin.close()
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            stream.close()


def result(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    assert process.stdout is not None
    assert process.stderr is not None
    status = process.wait(DEADLINE)
    assert process.stdout.read() == b""
    return status, process.stderr.read().decode()


def folder(machine: Machine, slot: str = "be-0") -> Path:
    return machine.root / "gpus" / machine.uuids[0] / slot


def refuse(connection: socket.socket) -> None:
    connection.send(b"refused")


def test_it_ends_at_once_if_the_agent_answers_and_leaves_no_trace(machine: Machine, start: Start) -> None:
    assert result(start(MANY_SECONDS, folder(machine, "hp-0"), folder(machine))) == (0, "")
    with AgentClient(machine.root) as agent:
        assert not [client for gpu in agent.snapshot().gpus for slot in gpu.slots for client in slot.clients]


def test_it_waits_until_an_agent_runs(bare_machine: Machine, start: Start) -> None:
    process = start(MANY_SECONDS, folder(bare_machine))
    eventually(lambda: sleeps(process.pid))
    bare_machine.start_agent()
    assert result(process) == (0, "")


def sleeps(process_id: int) -> bool:
    return "State:\tS" in Path(f"/proc/{process_id}/status").read_text()


def test_without_an_agent_it_fails_in_a_sentence_after_its_time(tmp_path: Path, start: Start) -> None:
    began = time.monotonic()
    code, sentence = result(start("1", tmp_path))
    assert code == 1
    assert sentence == (
        f"orion: the node's agent does not answer in {tmp_path}, and this pod must not start without it; "
        "the kubelet tries again\n"
    )
    assert 1 <= time.monotonic() - began < 10


def test_an_agent_that_is_stopped_does_not_answer(machine: Machine, start: Start) -> None:
    with AgentClient(machine.root) as agent:
        process_id = agent.snapshot().agent_process_id
    os.kill(process_id, signal.SIGSTOP)
    try:
        assert result(start("1", folder(machine)))[0] == 1
        process = start(MANY_SECONDS, folder(machine))
        eventually(lambda: sleeps(process.pid))
    finally:
        os.kill(process_id, signal.SIGCONT)
    assert result(process) == (0, "")


def test_an_agent_that_closes_the_connection_has_not_answered(socket_folder: Path, start: Start) -> None:
    agent = FakeAgent(socket_folder, lambda connection: connection.close())
    assert result(start("1", socket_folder))[0] == 1
    assert agent.connections > 1
    agent.close()


def test_the_agent_must_answer_in_every_slot(socket_folder: Path, tmp_path: Path, start: Start) -> None:
    agent = FakeAgent(socket_folder, refuse)
    assert result(start(MANY_SECONDS, socket_folder)) == (0, "")
    assert str(tmp_path) in result(start("1", socket_folder, tmp_path))[1]
    assert str(tmp_path) in result(start("1", tmp_path, socket_folder))[1]
    agent.close()


def test_a_long_path_is_no_problem(socket_folder: Path, tmp_path: Path, start: Start) -> None:
    agent = FakeAgent(socket_folder, refuse)
    deep = tmp_path / ("x" * 120)
    deep.symlink_to(socket_folder)
    assert result(start(MANY_SECONDS, deep)) == (0, "")
    agent.close()


def test_a_runtime_that_keeps_the_pipe_open_does_not_hold_it(c_build: Path, tmp_path: Path) -> None:
    command = [str(c_build / "orion-await-agent"), "0", str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.wait(DEADLINE) == 1


@pytest.mark.parametrize("arguments", [[], ["5"], ["", "/"], ["-1", "/"], ["5s", "/"], ["99999999999999999999", "/"]])
def test_bad_arguments_are_refused(start: Start, arguments: list[str]) -> None:
    assert result(start(*arguments)) == (2, "orion: use orion-await-agent SECONDS FOLDER...\n")


def test_it_needs_no_library_and_no_loader(c_build: Path) -> None:
    with (c_build / "orion-await-agent").open("rb") as file:
        kinds = {segment["p_type"] for segment in ELFFile(file).iter_segments()}
    assert kinds & {"PT_INTERP", "PT_DYNAMIC"} == set()
