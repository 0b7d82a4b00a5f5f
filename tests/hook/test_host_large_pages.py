"""On a kernel with pages of 64 KiB (arm64: GH200, GB200), clients are managed as on any other.

The clients have a second preload library, which refuses the addresses that such a kernel refuses.
"""

from tests.hook.harness import Machine
from tests.hook.scripted_client import MILLISECOND, Client, busy, eventually


def start(machine: Machine, slot: str) -> Client:
    """Start a client that sees large pages."""
    large = machine.build / "test" / "preload_large_pages.so"
    client = machine.start_in(machine.client_root(slot), LD_PRELOAD=f"{large}:{machine.hook}")
    client.must("init 0")
    machine.until_joined(client)
    return client


def test_clients_join_and_be_waits_for_hp(machine: Machine) -> None:
    other, hp = machine.start("be-1"), start(machine, "hp-0")  # hp's page is not the first of all clients
    be = start(machine, "be-0")
    machine.until_known(hp, be, other)
    for client in (be, other):
        with busy(hp, 20) as launched:
            ran = client.must("run 1 10")
        assert ran.ended >= launched.began + 20 * MILLISECOND
    hp.close()
    eventually(lambda: machine.gpu().slots and be.must("run 1 10").ended, "be runs without hp")
    assert be.said == other.said == []
