"""What a tenant can do to its neighbours through the MPS socket: NVIDIA's own commands, on a real GPU.

As root on a machine with an NVIDIA GPU and its MPS programs: `pytest -m gpu tests/gpu/test_gpu_mps_tenants.py`.
"""

import os
import subprocess
import time

import pytest

from orion.node_agent.mps.folder import Phase
from tests.gpu.mps_node import CONTAINED, POD, USER, MpsNode, say

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
QUESTIONS = (
    "get_server_list", "ps", "get_client_list {server}", "set_default_active_thread_percentage 10",
    "set_active_thread_percentage {server} 10", "set_default_device_pinned_mem_limit 0 1G",
    "set_device_pinned_mem_limit {server} 0 1G", "terminate_client {server} {client}", "quit -t 1",
)  # fmt: skip
ROOTS = {question for question in QUESTIONS if "{server}" in question and not question.startswith("get")}
""" Commands that NVIDIA's daemon accepts from any root through the clients' socket, as docs/mps.md says. """
STATE = ("get_default_active_thread_percentage", "get_active_thread_percentage {server}",
         "get_default_device_pinned_mem_limit 0", "get_device_pinned_mem_limit {server} 0")  # fmt: skip
PATIENCE, ALL = 5.0, 40.0
""" Seconds for one answer, and for all. """


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

    def _tell(self, question: str, harm: str) -> None:
        say(f"HARM: {question}: {harm}")
        self.found[question] = harm

    def ask(self, question: str) -> None:
        """Let the tenant send the commands."""
        try:
            clients = self._mps.folder.clients(self._mps.gpu)
            said = self._mps.ask(question.format(**self._numbers), *self._tenant, pipe=clients, patience=PATIENCE)
        except subprocess.TimeoutExpired:
            said = f"no answer within {PATIENCE:g} s"
        say(f"asks {question!r}: {said!r}")
        if (now := self._read()) != self._state:
            self._tell(question, f"{self._state} became {now}")
            self._state = now

    def look(self, after: str) -> None:
        """Check whether the neighbour was harmed; if so, start a new one."""
        if self._neighbour.do("work 3", 10).get("done") != 3:
            self._tell(after, "its neighbour has lost its context")
            self._neighbour.end()
            self._begin()

    def look_at_the_daemon(self) -> None:
        """Check, for as long as a quit takes, whether the same daemon runs."""
        deadline = time.monotonic() + 2
        while time.monotonic() < deadline:
            state = self._mps.state
            if state is None or self._daemon is None or state.process_id != self._daemon.process_id:
                self._tell("quit", f"the daemon has ended: {state}")
                return
            time.sleep(0.1)

    def _read(self) -> list[str]:
        return [self._mps.ask(each.format(**self._numbers), patience=PATIENCE) for each in STATE]


@pytest.mark.parametrize("tenant", TENANTS)
def test_a_tenant_can_ask_and_only_root_can_change_anything(tenant: str, mps: MpsNode) -> None:
    assert os.listdir(mps.folder.clients(mps.gpu)) == ["control"]
    harm, began = Harm(mps, TENANTS[tenant]), time.monotonic()
    for question in QUESTIONS:
        if time.monotonic() - began > ALL:
            say("no time for more")
            break
        harm.ask(question)
        harm.look(question)
    harm.look_at_the_daemon()
    harm.look("at the end")
    assert set(harm.found) <= (ROOTS if tenant in IS_ROOT else set()), harm.found
    assert mps.phase is Phase.RUNNING
