"""What a tenant can do to its neighbours if it sends NVIDIA's commands to the MPS socket of a real GPU.

Run as root on a machine with an NVIDIA GPU and its MPS programs: `pytest -m gpu tests/gpu/test_gpu_mps_tenants.py`.
"""

import os
import subprocess
import time

import pytest

from orion.node_agent.mps.folder import Phase
from tests.gpu.mps_node import CONTAINED, POD, USER, MpsNode, print_line

pytestmark = pytest.mark.gpu

TENANTS = {
    "user": ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"],
    "root": [],
    "root-in-a-pod": ["unshare", "--mount-proc", *POD, *CONTAINED],
    "root-of-a-user-namespace": [
        "setpriv", "--reuid=100000", "--regid=100000", "--clear-groups", "unshare", "--user", "--map-root-user",
    ],
}  # fmt: skip
IS_ROOT = ("root", "root-in-a-pod")
""" Tenants that are root for the node, and so for NVIDIA's daemon. """
COMMANDS = (
    "get_server_list", "ps", "get_client_list {server}", "set_default_active_thread_percentage 10",
    "set_active_thread_percentage {server} 10", "set_default_device_pinned_mem_limit 0 1G",
    "set_device_pinned_mem_limit {server} 0 1G", "terminate_client {server} {client}", "quit -t 1",
)  # fmt: skip
ROOT_COMMANDS = {command for command in COMMANDS if "{server}" in command and not command.startswith("get")}
""" Commands that NVIDIA's daemon accepts from any root through the clients' socket, as docs/mps.md says. """
STATE = ("get_default_active_thread_percentage", "get_active_thread_percentage {server}",
         "get_default_device_pinned_mem_limit 0", "get_device_pinned_mem_limit {server} 0")  # fmt: skip
PATIENCE, ALL = 5.0, 40.0
""" Seconds for the answer to one command, and for all commands. """


class Harm:
    """Sends commands that a tenant must not have, and checks their effect."""

    def __init__(self, mps: MpsNode, tenant: list[str]) -> None:
        self._mps, self._tenant = mps, tenant
        self.found: dict[str, str] = {}
        self._begin()

    def _begin(self) -> None:
        self._neighbour = self._mps.client("neighbour")
        self._numbers = {"client": str(self._neighbour.join()["pid"]), "server": str(self._mps.servers()[0])}
        self._daemon, self._state = self._mps.state, self._read()

    def _record(self, command: str, harm: str) -> None:
        print_line(f"HARM: {command}: {harm}")
        self.found[command] = harm

    def ask(self, command: str) -> None:
        """Let the tenant send a command."""
        try:
            clients = self._mps.folder.clients(self._mps.gpu)
            said = self._mps.ask(command.format(**self._numbers), *self._tenant, pipe=clients, patience=PATIENCE)
        except subprocess.TimeoutExpired:
            said = f"no answer within {PATIENCE:g} s"
        print_line(f"asks {command!r}: {said!r}")
        if (now := self._read()) != self._state:
            self._record(command, f"{self._state} became {now}")
            self._state = now

    def check_the_neighbour(self, after: str) -> None:
        """Check whether the neighbour was harmed; if so, start a new one."""
        if self._neighbour.do("work 3", 10).get("done") != 3:
            self._record(after, "its neighbour has lost its context")
            self._neighbour.end()
            self._begin()

    def check_the_daemon(self) -> None:
        """Check whether the same daemon still runs, for as long as a `quit` would take to end it."""
        deadline = time.monotonic() + 2
        while time.monotonic() < deadline:
            state = self._mps.state
            if state is None or self._daemon is None or state.process_id != self._daemon.process_id:
                self._record("quit", f"the daemon has ended: {state}")
                return
            time.sleep(0.1)

    def _read(self) -> list[str]:
        return [self._mps.ask(each.format(**self._numbers), patience=PATIENCE) for each in STATE]


@pytest.mark.parametrize("tenant", TENANTS)
def test_a_tenant_can_query_and_only_root_can_change_anything(tenant: str, mps: MpsNode) -> None:
    assert os.listdir(mps.folder.clients(mps.gpu)) == ["control"]
    harm, began = Harm(mps, TENANTS[tenant]), time.monotonic()
    for command in COMMANDS:
        if time.monotonic() - began > ALL:
            print_line("no time for more")
            break
        harm.ask(command)
        harm.check_the_neighbour(command)
    harm.check_the_daemon()
    harm.check_the_neighbour("at the end")
    assert set(harm.found) <= (ROOT_COMMANDS if tenant in IS_ROOT else set()), harm.found
    assert mps.phase is Phase.RUNNING
