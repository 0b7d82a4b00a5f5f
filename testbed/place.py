"""Where a control plane is: on the machine's loopback, or in a network of its own, with nodes.

A cluster with nodes has interfaces, routes and packet filters. None of them is in the machine's own network, except
the end of one cable: the control plane's network has a switch, each node's network is plugged into it, and so is the
machine, under addresses that nothing here has a route to. All of it goes with the processes in it.
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
from testbed.binaries import Unavailable
from testbed.namespaces import Network

LOOPBACK = "127.0.0.1"
# 198.18.0.0/15 is set aside for test networks by RFC 2544; the second is for machines that use the first themselves.
POOLS = ("198.18.0.0/15", "10.213.0.0/16")
MOST_NODES = 15  # a cluster has 16 networks: one for control plane and nodes, one for the pods of each node


class Place(Protocol):
    """Where components of a control plane run, and under which address they are reached."""

    address: str

    def entered(self) -> contextlib.AbstractContextManager[None]:
        """Let this thread's next sockets and children be there."""


class Loopback:
    """The machine itself: for a control plane without nodes."""

    address = LOOPBACK

    def entered(self) -> contextlib.AbstractContextManager[None]:
        """Do nothing: we are there."""
        return contextlib.nullcontext()


def ip(*lines: str) -> None:
    """Run lines of `ip`, such as `link set lo up`, in the network of this thread.

    Raises:
        OSError: one of them was refused; the text says which and why.
    """
    done = subprocess.run(["ip", "-batch", "-"], input="\n".join(lines), capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError(done.stderr.strip())


def _routes() -> list[ipaddress.IPv4Network]:
    listed = subprocess.run(["ip", "-4", "-json", "route", "show", "table", "all"], capture_output=True, text=True)
    named = [route["dst"] for route in json.loads(listed.stdout or "[]") if route["dst"] != "default"]
    return [ipaddress.IPv4Network(each, strict=False) for each in named]


def sweep() -> None:
    """Remove the cgroups of nodes whose cluster was killed; all else of it went with its processes."""
    for root in cgroups.found("orion-*"):
        interface = root.strip("/").replace("-", "")
        with contextlib.suppress(OSError):  # the interface is there, so its owner lives
            ip(f"link add {interface} type veth peer name {interface}-sweep")
            cgroups.remove(root)
            ip(f"link del {interface}")


def hardware_address(number: int) -> str:
    """Return the address of a node's interface, or of the switch as 0: one that stays.

    A switch takes that of its lowest port otherwise, and a node that is plugged in again a new one; the others would
    send to the old one for most of a minute.
    """
    return f"02:00:00:00:00:{number:02x}"


def make_router() -> None:
    """Let the network of this thread forward packets, without IPv6, which nothing here speaks.

    The kernel would keep a network for minutes where a connection's end was not confirmed, the other end being gone.
    """
    settings = Path("/proc/sys/net")
    for name in ("ip_forward", "tcp_orphan_retries", "tcp_fin_timeout"):
        (settings / "ipv4" / name).write_text("1")
    with contextlib.suppress(FileNotFoundError):
        (settings / "ipv6/conf/all/disable_ipv6").write_text("1")


class Fabric:
    """The networks of one cluster: `address` is the control plane's; nodes are plugged in by number, from 1.

    `ip link` shows the cluster's folder, `owner`, beside the machine's end of the cable.
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
        """Be in the control plane's network."""
        return self.network.entered()

    @property
    def interface(self) -> str:
        """The machine's end of the cable; who has made it owns the number, and with it addresses and cgroups."""
        return f"orion{self.number}"

    @property
    def cgroup(self) -> str:
        """The cgroup above those of the nodes."""
        return f"/orion-{self.number}"

    def node_address(self, number: int) -> str:
        """Return the address of a node."""
        return self._host(10 + number)

    def pods(self, number: int) -> ipaddress.IPv4Network:
        """Return the addresses of a node's pods."""
        return list(self.range.subnets(new_prefix=24))[number]

    def plug(self, node: Network, number: int) -> None:
        """Connect a node's network: to the switch, and by a route for its pods."""
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
        """Disconnect a node that is off."""
        with self.entered(), contextlib.suppress(OSError):
            ip(f"route del {self.pods(number)}")
            ip(f"link del node{number}")

    def close(self) -> None:
        """Remove the cable and the nodes' cgroups; the networks go with their last process."""
        cgroups.remove(self.cgroup)
        with contextlib.suppress(OSError):
            ip(f"link del {self.interface}")
        self.network.close()

    def _host(self, number: int) -> str:
        return str(self.range.network_address + number)

    def _claim(self) -> tuple[int, ipaddress.IPv4Network]:
        """Make our end of the cable under the first number that is free here and has addresses nobody has a route to.

        Raises:
            Unavailable: the kernel allows no interfaces, or all numbers are taken.
        """
        refusal = "no range of addresses is free"
        for number, candidate in ranges_beside(_routes()):
            try:
                ip(f"link add orion{number} type veth peer name machine netns {self.network.path}")
            except OSError as reason:
                refusal = str(reason)
                if "File exists" in refusal:
                    continue
                break
            cgroups.remove(f"/orion-{number}")  # of a cluster that was killed: see sweep()
            return number, candidate
        raise Unavailable(f"no network for a cluster with nodes: {refusal}")

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
    """Yield the ranges for a cluster, with their numbers, that overlap with none of these routes."""
    ranges = itertools.chain.from_iterable(ipaddress.IPv4Network(pool).subnets(new_prefix=20) for pool in POOLS)
    for number, candidate in enumerate(ranges):
        if not any(candidate.overlaps(each) for each in routes):
            yield number, candidate
