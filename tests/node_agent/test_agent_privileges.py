"""An agent with as few capabilities as in a cluster, beside hostile root processes with a container's capabilities."""

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest

from tests.hook import hostile_root
from tests.node_agent.conftest import AgentProcess
from tests.node_agent.protocol_client import ProtocolClient

ROOT = Path(__file__).parents[2]
DESCRIPTORS = 1024
SENDING_CAPABILITIES = {24: "sys_resource", 21: "sys_admin"}
""" Each allows a process to send descriptors when its user has too many in flight; the chart grants the first. """


def bounded(command: list[str], capabilities: str) -> list[str]:
    """Return a command that runs as root with only these capabilities."""
    kept = ",".join(["-all", *(f"+{each}" for each in capabilities.split())])
    return ["setpriv", "--bounding-set", kept, "--inh-caps", "-all", *command]


def sending_capability() -> str:
    """Return a capability of the list that root has here. Some machines lack the capability that the chart grants."""
    here = next(name for number, name in SENDING_CAPABILITIES.items() if ctypes.CDLL(None).prctl(23, number, 0, 0, 0))
    return here


class BoundedAgent(AgentProcess):
    """An agent with few capabilities and few descriptors."""

    capabilities = ""

    def command(self, *options: str) -> list[str]:
        limit = ["prlimit", f"--nofile={DESCRIPTORS}:{DESCRIPTORS}"]
        return [*limit, *bounded(super().command(*options), self.capabilities)]

    def begin(self, stderr: IO[bytes], *options: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self.command(*options), stderr=stderr)


Start = Callable[[str], BoundedAgent]


@pytest.fixture
def start(agent: AgentProcess) -> Iterator[Start]:
    """Starts the agent with few capabilities."""
    agent.kill()
    again = BoundedAgent(agent.root, agent.library)

    def start(capabilities: str) -> BoundedAgent:
        again.capabilities = capabilities
        again.start()
        return again

    yield start
    if again.process is not None:
        again.kill()


def hostile(script: str, slot: Path) -> subprocess.Popen[str]:
    """Run Python statements as root in a container would; `slot` is the directory of the container's slot."""
    program = "import sys\nfrom pathlib import Path\nfrom tests.hook.hostile_root import *\nslot = Path(sys.argv[1])\n"
    command = [sys.executable, "-c", program + script, str(slot)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.Popen(
        bounded(command, " ".join(hostile_root.DEFAULT_CAPABILITIES)),
        env=environment,
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def output_of(script: str, slot: Path) -> str:
    process = hostile(script, slot)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return output.strip()


def test_no_process_can_take_a_descriptor_of_the_agent(start: Start) -> None:
    assert output_of("print(reach_into_agent(slot))", start("").slot("be-0")) == "[]"


def test_root_in_a_container_cannot_write_read_only_pages(start: Start) -> None:
    agent = start("")
    with ProtocolClient(agent.slot("hp-0")).join():
        assert output_of("print(write_past_protection(slot), pose_as_neighbour(slot))", agent.slot("be-0")) == "[] []"


def test_a_client_can_return_after_root_changed_the_modes_of_its_pages(start: Start) -> None:
    agent = start("")
    with ProtocolClient(agent.slot("hp-0")).join() as hp:
        output_of("spoil_modes(slot)", agent.slot("be-0"))
        assert os.fstat(hp.busy.fd).st_mode & 0o777 == 0
        agent.kill()
        start("")
        key = hp.key
        assert hp.return_to_agent().returned
        with ProtocolClient(agent.slot("be-1")).join() as be:
            be.receive_until({key})


def test_descriptors_in_flight_do_not_prevent_joining(start: Start) -> None:
    agent = start(sending_capability())
    process = hostile(
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({DESCRIPTORS}, {DESCRIPTORS}))\n"
        "with descriptors_in_flight() as count:\n    print(count, flush=True)\n    sys.stdin.read()",
        agent.slot("be-0"),
    )
    assert process.stdout
    assert process.stdin
    try:
        assert int(process.stdout.readline()) > DESCRIPTORS
        with ProtocolClient(agent.slot("hp-0")).join() as hp, ProtocolClient(agent.slot("be-1")).join() as be:
            be.receive_until({hp.key})
    finally:
        process.stdin.close()
        process.wait(30)
        process.stdout.close()
