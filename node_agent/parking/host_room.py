"""Decides who leaves with the host's memory in view: what a tenant holds on the GPUs must fit there.

The host's memory is read for those that would leave, and only then. Who does not fit is passed over, and the decision
is made again without it. The files of cgroups are read in another thread: for a pod with many processes it takes so
long that clients of other tenants would wait. Meanwhile tenants may change, so the decision is then made again. A
process that joins a tenant which is leaving or away stays until it has been looked at in the same way. If it does not
fit, it stays, and the others come back when there is room, as where a process has refused to leave.
"""

import logging
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from orion.node_agent.clients.client import Client, is_going
from orion.node_agent.pages.client_pages import printable
from orion.node_agent.parking.deciding import decide
from orion.node_agent.parking.member import held
from orion.node_agent.parking.present import Present
from orion.node_agent.parking.view import Place, View, Wishes
from orion.node_agent.processes.host_memory import HostMemory
from orion.node_agent.processes.pod_cgroups import Level, level

_NODE = "the node"
_PATH_MAX = 120
""" A longer path is cut, so that the sentence fits into a status. """
_log = logging.getLogger(__name__)


class Joined(NamedTuple):
    """A process that has joined a tenant which is leaving or away."""

    present: Present
    clients: Collection[Client]
    short: str = ""
    """ Why it cannot leave, too: a sentence; empty: it can. """


class HostRoom:
    """What the host's memory can hold.

    Args:
        memory: of this machine; None: nothing leaves for it, or nobody can see it.
    """

    def __init__(self, memory: HostMemory | None) -> None:
        self._memory = memory
        self._charged: dict[str, Mapping[str, int]] = {}
        """ What those who leave are charged, by tenant. """
        self._cgroups: dict[int, list[str]] = {}
        self._left: dict[str, int | None] = {}
        """ The cgroups of each process, and what they and the node have left, in bytes; None: nobody knows, or all. """
        self.unread: set[int] = set()
        """ The processes whose cgroups must be read before the decision can be made. """
        self._warned = False

    def decide(self, view: View, present: Mapping[str, Present]) -> tuple[Wishes, dict[str, str]] | None:
        """Decide, and return too why tenants cannot leave that should: a sentence by name; None: call `read` before.

        Args:
            view: what to decide upon: all GPUs and tenants, or some.
            present: all tenants.
        """
        leaving = {each.name for each in view.tenants if each.place is Place.LEAVING}
        elsewhere = self._charged.keys() & present.keys() - {each.name for each in view.tenants}
        elsewhere = {name for name in elsewhere if present[name].known.place is Place.LEAVING}
        self._charged = {name: self._charged[name] for name in self._charged.keys() & (leaving | elsewhere)}
        wishes, known = decide(view), set[str]()
        while self._memory is not None and (new := set(wishes.leave) - known):
            wanted = new | (leaving - self._charged.keys())  # some were asked to leave by an earlier agent
            processes = {name: _processes(present[name]) for name in wanted}
            self.unread = set().union(*processes.values()) - self._cgroups.keys()
            if self.unread:
                return None
            self._charged |= {name: self._charge(each) for name, each in processes.items()}
            known |= new
            view = self._known(view, elsewhere)
            wishes = decide(view)
        short = {each.name: view.lacks_host_memory(each) for each in view.tenants if each.name in known}
        return wishes, {
            name: _sentence(places, self._charged[name], view.host) for name, places in short.items() if places
        }

    def judge(self, here: Collection[Present], wishes: Wishes) -> list[Joined] | None:
        """Return for processes that have joined leaving tenants whether they can leave, too.

        Args:
            here: tenants.
            wishes: the decision about them.

        Returns:
            None: call `read` before.
        """
        if self._memory is None:
            return [Joined(each, clients) for each in here for clients in each.joined.values()]
        self.unread = set[int]().union(*(each.joined for each in here)) - self._cgroups.keys()
        if self.unread:
            return None
        leave = {each.name for each in here if each.known.place is Place.LEAVING}.union(wishes.leave)
        leaving = Counter[str]()
        for name in leave & self._charged.keys():
            leaving.update(self._charged[name])
        found: list[Joined] = []
        for present, process, clients in ((each, *joined) for each in here for joined in each.joined.items()):
            charged = self._charge(Counter({process: sum(held(each) for each in clients if not is_going(each))}))
            host = {place: size - leaving[place] for place, size in self._left.items() if size is not None}
            short = [place for place, size in charged.items() if size > host[place]]
            found.append(Joined(present, clients, _sentence(short, charged, host) if short else ""))
            if not short:
                leaving.update(charged)
                self._charged[present.name] = Counter(self._charged.get(present.name, {})) + Counter(charged)
        return found

    def forget(self) -> None:
        """Forget what was read: what is left changes."""
        self._cgroups, self._left = {}, {}

    def read(self) -> None:
        """Read what the decision needs, each cgroup once; for another thread."""
        if self._memory is None:
            return
        for process in self.unread:
            folders = self._memory.cgroups(process)
            self._warn(process, folders)
            self._cgroups[process] = [self._memory.name(folder) for folder in folders]
            for name, folder in zip(self._cgroups[process], folders, strict=True):
                if name not in self._left:
                    self._left[name] = self._memory.left(folder)
        if _NODE not in self._left:
            self._left[_NODE] = self._memory.node_left()
        self.unread = set()

    def _known(self, view: View, elsewhere: Collection[str]) -> View:
        """Return the view with what is known of the host's memory, less what leaves GPUs that the view has not."""
        tenants = tuple(replace(each, charged=self._charged.get(each.name, {})) for each in view.tenants)
        charged = Counter[str]()
        for name in elsewhere:
            charged.update(self._charged[name])
        host = {place: size - charged[place] for place, size in self._left.items() if size is not None}
        return replace(view, tenants=tenants, host=host)

    def _charge(self, processes: Counter[int]) -> Mapping[str, int]:
        """Return what a tenant's leaving takes, by cgroup and node."""
        charged = Counter({_NODE: processes.total()})
        for process, size in processes.items():
            charged.update(dict.fromkeys(self._cgroups[process], size))
        return {place: size for place, size in charged.items() if self._left.get(place) is not None}

    def _warn(self, process: int, folders: list[Path]) -> None:
        if not folders and not self._warned:
            self._warned = True
            _log.warning(
                "parking: the cgroup of process %d is not visible, so only the node's memory is looked at before such "
                "processes leave a GPU: give the agent the folder where the machine's cgroups are mounted (--cgroups)",
                process,
            )


def _processes(present: Present) -> Counter[int]:
    """Return what each process of a tenant holds on the GPUs, in bytes."""
    found = Counter[int]()
    for member in present.members:
        most = member.held
        for client in member.clients:
            if not client.stays:
                found[client.process_id] += min(most, held(client))
    return found


def _sentence(places: list[str], charged: Mapping[str, int], host: Mapping[str, int]) -> str:
    """Return why a tenant cannot leave, what lacks most, and what to do."""
    place = max(places, key=lambda each: charged[each] - host[each])
    size, left = _gib(charged[place]), _gib(host[place])
    what = f"did not leave the GPU's memory: {size} of it would move to host memory, and"
    if place == _NODE:
        return f"{what} the node can give {left} more: free memory on the node, or move pods to another one"
    where = place if len(place) <= _PATH_MAX else f"...{place[3 - _PATH_MAX :]}"
    where = printable(where.encode("ascii", "replace"), _PATH_MAX)  # a container may name its cgroups as it likes
    step = {
        Level.CONTAINER: "raise resources.limits.memory of its container",
        Level.POD: "raise resources.limits.memory of its pod's containers",
        Level.OTHER: "raise the memory limit of that cgroup, or end others in it",
    }[level(place)]
    return f"{what} its cgroup {where} has {left} left: {step}"


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.2f} GiB"
