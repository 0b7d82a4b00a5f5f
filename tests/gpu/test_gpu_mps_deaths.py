"""Shared fate under MPS, on a real GPU: clients, servers and daemons end; what the others see; who can work next.

As root on a machine with an NVIDIA GPU and its MPS programs: `pytest -m gpu tests/gpu/test_gpu_mps_deaths.py`.
"""

import os
import signal
import time
from pathlib import Path

import pytest

from orion.node_agent.mps.folder import Phase
from tests.gpu.mps_node import PROCESS_IDS, USER, Client, MpsNode, say
from tests.waiting import eventually

pytestmark = pytest.mark.gpu

SEEN_SECONDS = 5.0
""" Seconds for which clients are watched that have lost their server. """


def next_works(mps: MpsNode) -> None:
    """Check that a new client is served within a time limit; print how long that took."""
    began = time.monotonic()
    while True:
        client = mps.client("next")
        answer = client.do("begin", 20)
        if answer.get("mps") == 1 and client.do("work 3", 20).get("done") == 3:
            say(f"the next client works {time.monotonic() - began:.2f} s after")
            return
        client.end()
        assert time.monotonic() - began < 60, "no client is served any more"
        time.sleep(0.5)


def watch(clients: list[Client]) -> None:
    """Print what working clients see, until each has seen an error or a time limit is reached."""
    began = time.monotonic()
    left = {client.name: client for client in clients}
    while left and time.monotonic() - began < SEEN_SECONDS:
        for name, client in list(left.items()):
            answer = client.do("work 3", 15)
            if "error" in answer:
                say(f"{name} sees {answer} {time.monotonic() - began:.2f} s after")
                del left[name]
        time.sleep(0.25)
    for name in left:
        say(f"{name} has seen nothing within {SEEN_SECONDS:g} s")


def test_after_the_servers_death_the_next_client_is_served(mps: MpsNode) -> None:
    clients = [mps.client("root"), mps.client("1000", user=USER), mps.client("own pids", namespaces=PROCESS_IDS)]
    for client in clients[:2]:
        client.join()
    clients[2].do("begin", 20)
    for server in mps.servers():
        say(f"SIGKILL to server {server}")
        os.kill(server, signal.SIGKILL)
    watch(clients)
    mps.show()
    say(f"servers now: {mps.servers()}")
    next_works(mps)
    watch(clients[:1])


def test_the_control_daemons_death_is_said_and_the_next_client_is_served(mps: MpsNode) -> None:
    client = mps.client("before")
    client.join()
    state = mps.state
    assert state is not None
    say(f"SIGKILL to control daemon {state.process_id}; servers {state.servers or mps.servers()}")
    os.kill(state.process_id, signal.SIGKILL)
    eventually(lambda: (now := mps.state) is not None and now.failures > 0, "it is said")
    say(f"said: {mps.state}")
    watch([client])
    eventually(lambda: mps.phase is Phase.RUNNING, "it runs again")
    say(f"again: {mps.state}; servers {mps.servers()}")
    next_works(mps)
    assert "error" in client.do("work 3", 15)
    mps.show()


def test_a_killed_client_takes_nobody_along(mps: MpsNode) -> None:
    stays, goes = mps.client("stays"), mps.client("goes", user=USER)
    stays.join()
    goes.join()
    assert goes.process.stdin is not None
    goes.process.stdin.write("work 1000000\n")
    assert stays.do("work 3").get("done") == 3
    goes.kill()
    answer = stays.do("work 100")
    next_works(mps)
    assert answer.get("done") == 100


def test_a_clients_fault_ends_its_neighbours_and_the_next_client_is_served(mps: MpsNode) -> None:
    neighbour, faulty = mps.client("neighbour"), mps.client("faulty", user=USER)
    neighbour.join()
    faulty.join()
    assert "error" in faulty.do("fault")
    say(f"what its neighbour sees: {neighbour.do('work 3')}")
    mps.show()
    early = mps.client("comes while both are there")
    early.do("begin", 10)
    for client in (neighbour, faulty, early):
        client.end()
    next_works(mps)


def test_back_in_timeslice_a_client_with_the_empty_folder_runs_without_mps(mps: MpsNode) -> None:
    mps.client("before").join()
    mps.clients[0].end()
    began = time.monotonic()
    mps.folder.want(mps.gpu, None)
    eventually(lambda: mps.state is None, "nothing runs any more")
    say(f"ended {time.monotonic() - began:.2f} s after; left for clients: {os.listdir(mps.folder.clients(mps.gpu))}")
    after = mps.client("after", user=USER)
    assert after.do("begin").get("mps") == 0
    assert after.do("work 3").get("done") == 3


def test_a_client_without_mps_goes_on_beside_clients(mps: MpsNode) -> None:
    """Like a process that starts while the control daemon is down: it is time-sliced with all that have joined."""
    clients = mps.folder.clients(mps.gpu)
    aside = clients.with_name("aside")
    aside.mkdir()
    outside = Client(aside, "without MPS")
    mps.clients.append(outside)
    assert outside.do("begin").get("mps") == 0
    mps.client("with MPS").join()
    assert outside.do("work 3").get("done") == 3


def test_the_mps_daemons_end_is_its_clients(mps: MpsNode) -> None:
    client = mps.client("client")
    client.join()
    servers = mps.servers()
    assert mps.process is not None
    began = time.monotonic()
    mps.terminate()
    mps.process.wait(60)
    say(f"SIGTERM: ended with {mps.process.returncode} after {time.monotonic() - began:.2f} s; state {mps.state}")
    watch([client])
    for server in servers:
        say(f"server {server} lives: {Path(f'/proc/{server}').exists()}")
    mps.start()
    next_works(mps)
