"""Processes of one slot with a limit of memory; the fixture `tenants`."""

from tests.hook.harness import Machine
from tests.hook.scripted_client import Client

MIB = 1 << 20
LIMIT = 512
""" The limit, in MiB. """
OUT_OF_MEMORY = 2
""" CUDA's number. """


class LimitedTenants:
    """Processes that share the limit."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.root = machine, machine.client_root("be-0")
        machine.agent.set_grant(machine.uuids[0], "be-0", memory_limit_bytes=LIMIT * MIB)

    def start(self) -> Client:
        client = self.machine.start_in(self.root)
        client.must("init 0")
        self.machine.until_joined(client)
        return client
