"""The network of a control plane: the machine's loopback, or a separate network with nodes.

A cluster with nodes has interfaces, routes and packet filters. None of them is in the machine's own network, except one
end of a veth pair. The control plane's network has a switch. Each node's network is connected to the switch, and so is
the machine, with addresses to which the machine has no other route. All of it disappears with the processes in it.
"""

import contextlib
import ipaddress
import itertools
import json
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from testbed import cgroups
from testbed.errors import Missing
from testbed.namespaces import Network

LOOPBACK = "127.0.0.1"
# RFC 2544 reserves 198.18.0.0/15 for test networks; the second pool is for machines that use the first one themselves.
POOLS = ("198.18.0.0/15", "10.213.0.0/16")
MOST_NODES = 15  # a cluster has 16 networks: one for control plane and nodes, one for the pods of each node


class Place(Protocol):
    """Where the components of a control plane run, and the address at which they are reached."""

    address: str

    def entered(self) -> contextlib.AbstractContextManager[None]:
        """Make this thread's next sockets and children belong to this network."""


class Loopback:
    """The machine's loopback: for a control plane without nodes."""

    address = LOOPBACK

    def entered(self) -> contextlib.AbstractContextManager[None]:
        """Do nothing: the thread is in this network already."""
        return contextlib.nullcontext()


def ip(*lines: str) -> None:
    """Run lines of `ip`, such as `link set lo up`, in this thread's network namespace.

    Raises:
        OSError: `ip` rejected a line; the text says which and why.
    """
    done = subprocess.run(["ip", "-batch", "-"], input="\n".join(lines), capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError(done.stderr.strip())


def _routes() -> list[ipaddress.IPv4Network]:
    listed = subprocess.run(["ip", "-4", "-json", "route", "show", "table", "all"], capture_output=True, text=True)
    named = [route["dst"] for route in json.loads(listed.stdout or "[]") if route["dst"] != "default"]
    return [ipaddress.IPv4Network(each, strict=False) for each in named]


def sweep() -> None:
    """Remove the cgroups of nodes whose cluster was killed. Everything else of it disappeared with its processes."""
    for root in cgroups.found("orion-*"):
        interface = root.strip("/").replace("-", "")
        with contextlib.suppress(OSError):  # the interface exists, so the cluster that owns it runs
            ip(f"link add {interface} type veth peer name {interface}-sweep")
            cgroups.remove(root)
            ip(f"link del {interface}")


def hardware_address(number: int) -> str:
    """Return the fixed hardware address of a node's interface; for 0, that of the switch.

    Without a fixed address, the switch takes the address of its lowest port, and a node that is connected again gets a
    new address. The other nodes would then send to the old address for most of a minute.
    """
    return f"02:00:00:00:00:{number:02x}"


def make_router() -> None:
    """Make this thread's network forward packets, and disable IPv6, which nothing here uses.

    The short TCP timeouts matter because the kernel keeps a network for minutes while a connection in it is unconfirmed
    after the other end has disappeared.
    """
    settings = Path("/proc/sys/net")
    for name in ("ip_forward", "tcp_orphan_retries", "tcp_fin_timeout"):
        (settings / "ipv4" / name).write_text("1")
    with contextlib.suppress(FileNotFoundError):
        (settings / "ipv6/conf/all/disable_ipv6").write_text("1")


class Fabric:
    """The networks of one cluster; `address` is the control plane's, and nodes are numbered from 1.

    `ip link` shows the cluster's folder, `owner`, as the alias of the machine's end of the veth pair.
    """

    def __init__(self, owner: Path) -> None:
        self.network = Network()
        try:
            self.number, self.range = self._claim()
            self.address = self._host(1)
            self._connect(owner)
        except BaseException:
            self.network.close()
            raise

    def entered(self) -> contextlib.AbstractContextManager[None]:
        """Enter the control plane's network."""
        return self.network.entered()

    @property
    def interface(self) -> str:
        """The machine's end of the veth pair. Whoever made it owns its number, and so the addresses and cgroups."""
        return f"orion{self.number}"

    @property
    def cgroup(self) -> str:
        """The parent of the nodes' cgroups."""
        return f"/orion-{self.number}"

    def node_address(self, number: int) -> str:
        """Return the address of a node."""
        return self._host(10 + number)

    def pods(self, number: int) -> ipaddress.IPv4Network:
        """Return the address range of a node's pods."""
        return list(self.range.subnets(new_prefix=24))[number]

    def plug(self, node: Network, number: int) -> None:
        """Connect a node's network to the switch, and add a route to its pods."""
        with self.entered():
            ip(
                f"link add node{number} type veth peer name eth0 address {hardware_address(number)} netns {node.path}",
                f"link set node{number} master switch up",
                f"route add {self.pods(number)} via {self.node_address(number)}",
            )
        with node.entered():
            ip(
                "link set lo up",
                f"address add {self.node_address(number)}/24 dev eth0",
                "link set eth0 up",
                f"route add default via {self.address}",
            )
            make_router()

    def unplug(self, number: int) -> None:
        """Disconnect a node that is switched off."""
        with self.entered(), contextlib.suppress(OSError):
            ip(f"route del {self.pods(number)}")
            ip(f"link del node{number}")

    def close(self) -> None:
        """Remove the veth pair and the nodes' cgroups; the networks disappear with their last process."""
        cgroups.remove(self.cgroup)
        with contextlib.suppress(OSError):
            ip(f"link del {self.interface}")
        self.network.close()

    def _host(self, number: int) -> str:
        return str(self.range.network_address + number)

    def _claim(self) -> tuple[int, ipaddress.IPv4Network]:
        """Make our end of the veth pair under the first free number whose addresses no route of the machine covers.

        Raises:
            Missing: the kernel permits no interfaces, or all numbers are taken.
        """
        refusal = "the machine has routes to all address ranges"
        for number, candidate in ranges_beside(_routes()):
            try:
                ip(f"link add orion{number} type veth peer name machine netns {self.network.path}")
            except OSError as reason:
                refusal = str(reason)
                if "File exists" in refusal:
                    continue
                break
            cgroups.remove(f"/orion-{number}")  # a cluster that was killed may have left it: see sweep()
            return number, candidate
        raise Missing(f"cannot make a network for a cluster with nodes: {refusal}")

    def _connect(self, owner: Path) -> None:
        with self.entered():
            ip(
                "link set lo up",
                f"link add switch address {hardware_address(0)} type bridge",
                f"address add {self.address}/24 dev switch",
                "link set switch up",
                "link set machine master switch up",
            )
            make_router()
        ip(
            f'link set {self.interface} alias "{str(owner)[:200]}"',
            f"address add {self._host(2)}/24 dev {self.interface}",
            f"link set {self.interface} up",
            f"route add {self.range} via {self.address} dev {self.interface}",
        )


def ranges_beside(routes: Sequence[ipaddress.IPv4Network]) -> Iterator[tuple[int, ipaddress.IPv4Network]]:
    """Yield the address ranges that overlap none of these routes, each with its number."""
    ranges = itertools.chain.from_iterable(ipaddress.IPv4Network(pool).subnets(new_prefix=20) for pool in POOLS)
    for number, candidate in enumerate(ranges):
        if not any(candidate.overlaps(each) for each in routes):
            yield number, candidate
