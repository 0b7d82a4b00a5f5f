"""MPS under the conditions of pods, on a real GPU: other users, namespaces, a separate /dev/shm, few capabilities.

Run as root on a machine with an NVIDIA GPU and its MPS programs: `pytest -m gpu tests/gpu/test_gpu_mps_in_pods.py`.
mps_report.py in this folder also prints what happens.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.gpu.mps_node import POD, PROCESS_IDS, SIMULATED, USER, Client, MpsNode, print_line

pytestmark = pytest.mark.gpu

MOST_CLIENTS = 4 if SIMULATED else 64
""" More clients than any driver allows one server. """


def test_clients_of_several_user_ids_share_one_server(mps: MpsNode) -> None:
    clients = [mps.client("root"), mps.client("1000", user=USER), mps.client("1001", user=USER + 1)]
    for client in clients:
        client.join()
    mps.show()
    servers = mps.servers()
    print_line(f"servers: {servers}; several users: {mps.state}")
    assert clients[0].do("work 3").get("done") == 3
    assert len(servers) == 1


def test_clients_with_a_separate_dev_shm_run_under_mps(mps: MpsNode) -> None:
    before = set(os.listdir("/dev/shm"))
    mps.client("root, the node's shm").join()
    print_line(f"new in /dev/shm: {sorted(set(os.listdir('/dev/shm')) - before)}")
    mps.client("root, own shm", own_shm=True).join()
    mps.client("1000, own shm", own_shm=True, user=USER).join()


def test_clients_in_separate_ipc_namespaces_run_under_mps(mps: MpsNode) -> None:
    mps.client("root, own ipc", namespaces=["--ipc"], own_shm=True).join()
    mps.client("1000, own ipc", namespaces=["--ipc"], own_shm=True, user=USER).join()


def test_clients_in_separate_network_namespaces_run_under_mps(mps: MpsNode) -> None:
    mps.client("root, own network", namespaces=["--net"]).join()
    mps.client("1000, own network", namespaces=["--net"], user=USER).join()


@contextmanager
def without_mps(mps: MpsNode, name: str, **options: object) -> Iterator[Client]:
    """Start the same client with an empty pipe folder: if this client fails, too, then MPS is not the cause."""
    empty = mps.root / "empty"
    empty.mkdir(mode=0o755, exist_ok=True)
    client = Client(empty, f"{name}, without MPS", **options)  # type: ignore[arg-type]
    try:
        yield client
    finally:
        client.end()


def test_clients_in_separate_pid_namespaces_run_under_mps(mps: MpsNode) -> None:
    with without_mps(mps, "root, own pids", namespaces=PROCESS_IDS) as client:
        client.do("begin")
    mps.client("root, own pids", namespaces=PROCESS_IDS).join()
    mps.client("1000, own pids", namespaces=PROCESS_IDS, user=USER).join()
    mps.show()


def test_clients_in_all_namespaces_of_a_pod_run_under_mps(mps: MpsNode) -> None:
    """All namespaces, a separate /dev/shm and a container's capabilities together."""
    with without_mps(mps, "root, a pod", namespaces=POD, own_shm=True, contained=True) as client:
        client.do("begin")
    first = mps.client("root, a pod", namespaces=POD, own_shm=True, contained=True)
    first.join()
    mps.client("1000, a pod", namespaces=POD, own_shm=True, contained=True, user=USER).join()
    assert first.do("work 3").get("done") == 3
    print_line(f"servers: {mps.servers()}; clients: {[mps.ask(f'get_client_list {each}') for each in mps.servers()]}")


def test_a_daemon_in_a_separate_pid_namespace_serves_other_pods() -> None:
    """The DaemonSet does not need hostPID: the daemon and each client have separate pid namespaces."""
    with MpsNode("unshare", "--pid", "--fork", "--mount-proc", "--kill-child=SIGTERM") as mps:
        mps.client("root, other pids", namespaces=PROCESS_IDS).join()
        mps.client("1000, other pids", namespaces=PROCESS_IDS, user=USER).join()


def test_a_daemon_without_any_capability_serves() -> None:
    with MpsNode("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs") as mps:
        mps.client("root").join()
        mps.client("1000", user=USER).join()


def test_one_client_too_many_is_refused_and_the_others_continue(mps: MpsNode) -> None:
    for number in range(MOST_CLIENTS):
        mps.client(f"number {number + 1}")
    said = {}
    for number, client in enumerate(mps.clients):
        answer = client.do("begin", 20)
        if answer.get("mps") != 1:
            said[number + 1] = answer
            break
    print_line(f"the first that is refused: {said or 'none'}")
    joined = mps.clients[: min(said, default=MOST_CLIENTS + 1) - 1]
    assert len(joined) > 1
    assert all(client.do("work 3", 20).get("done") == 3 for client in joined[:3] + joined[-3:])
