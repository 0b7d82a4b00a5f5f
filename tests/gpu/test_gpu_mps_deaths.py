"""The end of an MPS client, server or daemon on a real GPU: what the others see, and whether the next client works.

Run as root on a machine with an NVIDIA GPU and its MPS programs: `pytest -m gpu tests/gpu/test_gpu_mps_deaths.py`.
"""

import os
import signal
import time
from pathlib import Path

import pytest

from orion.node_agent.mps.folder import Phase
from tests.gpu.mps_node import PROCESS_IDS, USER, Client, MpsNode, print_line
from tests.waiting import eventually

pytestmark = pytest.mark.gpu

WATCH_SECONDS = 5.0
""" How many seconds a test watches clients that have lost their server. """


def check_that_the_next_client_works(mps: MpsNode) -> None:
    """Check that a new client is served within a time limit; print how long that took."""
    began = time.monotonic()
    while True:
        client = mps.client("next")
        answer = client.do("begin", 20)
        if answer.get("mps") == 1 and client.do("work 3", 20).get("done") == 3:
            print_line(f"the next client works {time.monotonic() - began:.2f} s after")
            return
        client.end()
        assert time.monotonic() - began < 60, "MPS serves no new client"
        time.sleep(0.5)


def watch(clients: list[Client]) -> None:
    """Print what working clients see, until each has seen an error or a time limit is reached."""
    began = time.monotonic()
    left = {client.name: client for client in clients}
    while left and time.monotonic() - began < WATCH_SECONDS:
        for name, client in list(left.items()):
            answer = client.do("work 3", 15)
            if "error" in answer:
                print_line(f"{name} sees {answer} {time.monotonic() - began:.2f} s after")
                del left[name]
        time.sleep(0.25)
    for name in left:
        print_line(f"{name} has seen nothing within {WATCH_SECONDS:g} s")


def test_after_the_servers_death_the_next_client_is_served(mps: MpsNode) -> None:
    clients = [mps.client("root"), mps.client("1000", user=USER), mps.client("own pids", namespaces=PROCESS_IDS)]
    for client in clients[:2]:
        client.join()
    clients[2].do("begin", 20)
    for server in mps.servers():
        print_line(f"SIGKILL to server {server}")
        os.kill(server, signal.SIGKILL)
    watch(clients)
    mps.show()
    print_line(f"servers now: {mps.servers()}")
    check_that_the_next_client_works(mps)
    watch(clients[:1])


def test_the_control_daemons_death_is_reported_and_the_next_client_is_served(mps: MpsNode) -> None:
    client = mps.client("before")
    client.join()
    state = mps.state
    assert state is not None
    print_line(f"SIGKILL to control daemon {state.process_id}; servers {state.servers or mps.servers()}")
    os.kill(state.process_id, signal.SIGKILL)
    eventually(lambda: (now := mps.state) is not None and now.failures > 0, "the daemon reports the failure")
    print_line(f"reported: {mps.state}")
    watch([client])
    eventually(lambda: mps.phase is Phase.RUNNING, "a control daemon runs again")
    print_line(f"again: {mps.state}; servers {mps.servers()}")
    check_that_the_next_client_works(mps)
    assert "error" in client.do("work 3", 15)
    mps.show()


def test_a_killed_client_does_not_end_its_neighbour(mps: MpsNode) -> None:
    stays, goes = mps.client("stays"), mps.client("goes", user=USER)
    stays.join()
    goes.join()
    assert goes.process.stdin is not None
    goes.process.stdin.write("work 1000000\n")
    assert stays.do("work 3").get("done") == 3
    goes.kill()
    answer = stays.do("work 100")
    check_that_the_next_client_works(mps)
    assert answer.get("done") == 100


def test_a_clients_fault_ends_its_neighbours_and_the_next_client_is_served(mps: MpsNode) -> None:
    neighbour, faulty = mps.client("neighbour"), mps.client("faulty", user=USER)
    neighbour.join()
    faulty.join()
    assert "error" in faulty.do("fault")
    print_line(f"what its neighbour sees: {neighbour.do('work 3')}")
    mps.show()
    early = mps.client("comes while both are there")
    early.do("begin", 10)
    for client in (neighbour, faulty, early):
        client.end()
    check_that_the_next_client_works(mps)


def test_back_in_timeslice_a_client_with_the_empty_folder_runs_without_mps(mps: MpsNode) -> None:
    mps.client("before").join()
    mps.clients[0].end()
    began = time.monotonic()
    mps.folder.want(mps.gpu, None)
    eventually(lambda: mps.state is None, "nothing runs any more")
    print_line(
        f"ended {time.monotonic() - began:.2f} s after; left for clients: {os.listdir(mps.folder.clients(mps.gpu))}"
    )
    after = mps.client("after", user=USER)
    assert after.do("begin").get("mps") == 0
    assert after.do("work 3").get("done") == 3


def test_a_client_without_mps_continues_beside_clients_with_mps(mps: MpsNode) -> None:
    """A process that starts while the control daemon is down runs like this: time-sliced with the MPS clients."""
    clients = mps.folder.clients(mps.gpu)
    aside = clients.with_name("aside")
    aside.mkdir()
    outside = Client(aside, "without MPS")
    mps.clients.append(outside)
    assert outside.do("begin").get("mps") == 0
    mps.client("with MPS").join()
    assert outside.do("work 3").get("done") == 3


def test_after_the_end_of_the_mps_daemon_a_new_daemon_serves_the_next_client(mps: MpsNode) -> None:
    client = mps.client("client")
    client.join()
    servers = mps.servers()
    assert mps.process is not None
    began = time.monotonic()
    mps.terminate()
    mps.process.wait(60)
    print_line(
        f"SIGTERM: ended with {mps.process.returncode} after {time.monotonic() - began:.2f} s; state {mps.state}"
    )
    watch([client])
    for server in servers:
        print_line(f"server {server} lives: {Path(f'/proc/{server}').exists()}")
    mps.start()
    check_that_the_next_client_works(mps)
