"""`orion run --id`: real programs on the simulated GPU follow the agent's resource file while they run."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orion.cli import agents
from orion.node_agent.api.client import NoAgent
from tests.cli.orion_command import ORION, orion
from tests.waiting import DEADLINE, eventually

MIB = 1 << 20
# A CUDA program: for each number of MiB that it reads, it allocates them and prints the result, 0 for success.
CLIENT = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, memory = ctypes.c_void_p(), ctypes.c_void_p()
assert cuda.cuInit(0) == 0
count = ctypes.c_int()
assert cuda.cuDeviceGetCount(ctypes.byref(count)) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
print(count.value, flush=True)
for line in sys.stdin:
    result = cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(int(line) << 20))
    if result == 0:
        assert cuda.cuMemFree_v2(memory) == 0
    print(result, flush=True)
"""

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def path(root: Path) -> Path:
    path = root / "resource-config.txt"
    path.write_text(f"2\nclient1 0.2 0.5 {64 * MIB}\nclient2 0.4 1 {128 * MIB}\n")
    return path


@pytest.fixture(autouse=True)
def _two_gpus(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulated GPUs of this test alone."""
    monkeypatch.setenv("ORION_SIM_STATE", str(root / "sim"))
    monkeypatch.setenv("ORION_SIM_GPUS", "2")


@pytest.fixture
def start(root: Path) -> Iterator[Start]:
    """A function that starts `orion` with these words; all end with the test, the last one first."""
    started: list[subprocess.Popen[str]] = []

    def begin(*words: str) -> subprocess.Popen[str]:
        with (root / f"stderr-{len(started)}").open("w") as stderr:
            process = subprocess.Popen(
                [*ORION, *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        started.append(process)
        return process

    yield begin
    for process in reversed(started):
        process.terminate()
        process.wait(DEADLINE)
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            stream.close()


@pytest.fixture
def agent(root: Path, path: Path, start: Start) -> Path:
    """The log of an agent of two simulated GPUs that reads the resource file."""
    return start_agent(root, start, "--resource-config", str(path))


def start_agent(root: Path, start: Start, *options: str) -> Path:
    common = ["--root", str(root), "--simulated", "--metrics-address", "", "--be-slots", "0"]
    start("agent", *common, *options)
    log = root / "stderr-0"
    eventually(lambda: " agent: serves " in log.read_text(), "the agent serves")
    return log


def program(root: Path, start: Start, *options: str) -> subprocess.Popen[str]:
    command = ["run", "--simulated", "--root", str(root), *options, "--", sys.executable, "-c", CLIENT]
    return start(*command)


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def allocates(process: subprocess.Popen[str], mib: int) -> bool:
    assert process.stdin is not None
    process.stdin.write(f"{mib}\n")
    process.stdin.flush()
    return line(process) == "0"


def granted(root: Path) -> list[tuple[str, float, float, int]]:
    """Return the slots of the first GPU that have an id: request, limit and number of processes."""
    found = [slot for slot in agents.ask(root).gpus[0].slots if slot.rule]
    return sorted((slot.rule, slot.request, slot.limit, len(slot.clients)) for slot in found)


def test_a_program_follows_its_id_while_it_runs(root: Path, path: Path, agent: Path, start: Start) -> None:
    client = program(root, start, "--id", "client1")
    assert line(client) == "2"
    eventually(lambda: granted(root) == [("client1", 0.2, 0.5, 1)], "the program has joined")
    assert not allocates(client, 100)
    path.write_text(f"1\nclient1 0.3 0.6 {128 * MIB}\n")
    eventually(lambda: granted(root) == [("client1", 0.3, 0.6, 1)], "the slot follows the file")
    eventually(lambda: allocates(client, 100), "the program has more memory")
    path.write_text("rubbish\n")
    eventually(lambda: f"{path}, line 1: 'rubbish'" in agent.read_text(), "the fault is logged")
    assert granted(root) == [("client1", 0.3, 0.6, 1)]
    assert allocates(client, 100)


def test_several_programs_with_one_id_share_a_slot(root: Path, agent: Path, start: Start) -> None:
    clients = [program(root, start, "--name", "client1", "--port", "50052") for _ in range(2)]
    assert [line(client) for client in clients] == ["2", "2"]
    eventually(lambda: granted(root) == [("client1", 0.2, 0.5, 2)], "both have joined one slot")
    clients[0].kill()
    eventually(lambda: granted(root) == [("client1", 0.2, 0.5, 1)], "the slot stays for the other one")
    clients[1].kill()
    eventually(lambda: granted(root) == [], "the slot is closed")
    assert "orion: port is not needed: " in (root / "stderr-1").read_text()


def test_a_program_sees_the_gpu_whose_file_has_its_id(root: Path, start: Start) -> None:
    folder = root / "rules"
    folder.mkdir()
    start_agent(root, start, "--resource-config", str(folder))
    second = agents.ask(root).gpus[1].uuid
    (folder / second).write_text(f"1\ndefault/pod 0.2 0.5 {64 * MIB}\n")
    eventually(lambda: "is applied: 1 ids (default/pod)" in (root / "stderr-0").read_text(), "the file is read")
    client = program(root, start, "--id", "default/pod")
    assert line(client) == "1"
    eventually(lambda: [len(gpu.slots) for gpu in agents.ask(root).gpus] == [1, 2], "a slot of the second GPU")


def test_an_unknown_id_is_named_with_the_known_ones(root: Path, path: Path, agent: Path) -> None:
    done = orion("run", "--root", str(root), "--id", "client3", "--", "true")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"orion: {path} has no id 'client3'; its ids are: client1, client2\n"


def test_a_fault_is_shown_by_top_and_doctor(root: Path, path: Path, agent: Path) -> None:
    path.write_text(f"1\nclient1 0.8 0.5 {64 * MIB}\n")
    eventually(lambda: f"{path}, line 2: request 0.8" in agent.read_text(), "the fault is logged")
    checks = json.loads(orion("doctor", "--simulated", "--json", "--root", str(root)).stdout)["checks"]
    (found,) = [check for check in checks if check["name"] == "resource file"]
    assert found["status"] == "note"
    assert f"{path}, line 2: request 0.8 is above limit 0.5" in found["reason"]
    assert "line 2" in " ".join(orion("top", "--once", "--root", str(root)).stdout.split())


def test_without_an_agent_or_a_file_the_error_says_what_to_start(root: Path, start: Start) -> None:
    done = orion("run", "--root", str(root), "--id", "a", "--", "true")
    assert done.returncode == 1
    assert f"start `orion agent --root {root} --resource-config FILE`" in done.stderr
    with pytest.raises(NoAgent):
        agents.ask(root)
    start_agent(root, start)
    done = orion("run", "--root", str(root), "--id", "a", "--", "true")
    assert "start it with --resource-config FILE" in done.stderr


def test_the_flags_of_gemini_s_backend_start_an_agent(root: Path, path: Path, start: Start) -> None:
    words = ["./gem-schd", "./gem-pmgr", "--ip", "127.0.0.1", "--port", "50051", "--config", str(path)]
    log = start_agent(root, start, *words, "--base_quota", "300", "--min_quota", "20", "--window", "10000")
    said = [each.removeprefix("orion: ") for each in log.read_text().splitlines() if each.startswith("orion: ")]
    assert said == [
        "--base_quota 300: turns have 1 to 100 ms, so 100 ms are used",
        "--window 10000: limits hold over 1000 ms, and so over a longer window, too",
        "schd is not needed: the agent has its own scheduler",
        "pmgr is not needed: the agent has its own scheduler",
        "ip is not needed: programs join the agent through a socket in its folder",
        "port is not needed: programs join the agent through a socket in its folder",
    ]
    assert "is applied: 2 ids (client1, client2)" in log.read_text()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["agent", "--base_quota", "10", "--min_quota", "20"], "below the shortest"),
        (["agent", "--base_quota", "nan"], "--base_quota cannot be nan"),
        (["agent", "--base_quota", "10", "--longest-turn-ms", "10"], "mean the same"),
        (["agent", "--longest-turn-ms", "101"], "--longest-turn-ms"),
        (["agent", "--shortest-turn-ms", "0"], "--shortest-turn-ms"),
        (["agent", "./gem-schd"], "unexpected argument: './gem-schd'"),
        (["run", "--id", "a", "--name", "b", "--", "true"], "mean the same"),
        (["run", "--id", "a", "--priority", "hp", "--", "true"], "--id is for --priority be"),
        (["run", "--id", "a", "--limit", "0.5", "--", "true"], "--limit cannot be given with --id"),
        (["run", "--name", "a", "--timeout", "30", "--", "true"], "`timeout 30 orion run ...`"),
    ],
)
def test_contradictions_are_refused(words: list[str], says: str) -> None:
    done = orion(*words)
    assert done.returncode == 2, done.stderr
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
