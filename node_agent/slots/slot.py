"""Slots: the right of a container to use a GPU, each with its own directory and socket.

A process that connects through a slot's socket uses that slot. The mount of the slot's directory proves to which slot
the process belongs. No message can claim another slot.
"""

import contextlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orion.hook import layout
from orion.node_agent.pacing.token_bucket import TokenBucket
from orion.node_agent.pages import agent_pages
from orion.node_agent.pages.plans import Plan
from orion.node_agent.processes.liveness import Owner
from orion.node_agent.slots import known_limit
from orion.node_agent.slots.claim import Claim
from orion.node_agent.slots.knowledge import Knowledge
from orion.node_agent.slots.memory_sharing import MemorySharing
from orion.node_agent.slots.parking_state import SlotParking

SOCKET, NOTICES = "agent.sock", "notices.sock"
""" Where clients join, and where they send what needs no answer. """

JOINS_BURST = 512
""" How many clients may join a slot at once: all clients of a GPU. """
JOINS_PER_SECOND = 50.0
_WISHES_BURST, _WISHES_PER_SECOND = 64, 200.0
""" How often its clients may ask for more memory, and monitors for the grant. """
_HAND_BACKS_BURST, _HAND_BACKS_PER_SECOND, _ASKS_BURST, _ASKS_PER_SECOND = 32, 90.0, 64, 110.0
""" How often its clients may hand back the turn, and ask for one: each time the agent plans the GPU's turns again. A
client asks once after each time, so a slot with one client is heard whenever it asks. One that is not heard waits
for 50 ms. """


class Slot:
    """A slot: its grant page and its directory.

    Args:
        gpu: the GPU's UUID.
        name: unique on the GPU; also the directory's name.
        role: the role of all its clients; it never changes.
        directory: created if it does not exist.
        known: the file with what its clients learnt.
        permanent: made at the agent's start; the end of its owner resets it but does not remove it.
    """

    def __init__(self, gpu: str, name: str, role: layout.Role, directory: Path, known: Path, permanent: bool) -> None:
        self.gpu = gpu
        self.name = name
        self.role = role
        self.directory = directory
        self.permanent = permanent
        self.owner: Owner | None = None
        """ The process for which the slot was made. """
        self.sharers: tuple[Owner, ...] = ()
        """ The living processes that own the slot together, if it is for an id of a resource file. """
        self.rule = ""
        """ The id in the agent's resource file that decides the grant; empty: none does. """
        self.holder_text = ""
        """ Saved for the next agent: who holds the slot, written by cluster/holders/grants.py. """
        self.holder = ""
        """ The pod that holds the slot, as NAMESPACE/NAME; empty: none, or not known yet. """
        self.claim: Claim | None = None
        """ The ResourceClaim that has the slot; None: none has. """
        self.knowledge = Knowledge(known)
        self.joins = TokenBucket(JOINS_BURST, JOINS_PER_SECOND)
        self.hand_backs = TokenBucket(_HAND_BACKS_BURST, _HAND_BACKS_PER_SECOND)
        self.asks = TokenBucket(_ASKS_BURST, _ASKS_PER_SECOND)
        self.memory_wishes = TokenBucket(_WISHES_BURST, _WISHES_PER_SECOND)
        self.room_wishes = TokenBucket(_WISHES_BURST, _WISHES_PER_SECOND)
        self.views = TokenBucket(_WISHES_BURST, _WISHES_PER_SECOND)
        self.memory_sharing = MemorySharing()
        self.pages_cost_time_only = False
        """ The GPU is simulated, so managed memory beyond it harms nothing but its owner. """
        self.parking = SlotParking()
        """ Where the memory of its processes is. """
        directory.mkdir(parents=True, exist_ok=True)  # before the page: nobody would close it if this fails
        directory.chmod(0o755)
        self.page = agent_pages.GrantPage(gpu)
        self.grant = agent_pages.Grant(role, 0, 0)
        self.debt_ns = 0.0
        """ be: what earlier containers owed. It is charged again only once the slot's container is known to be of the
        same pod (cluster/holders/grants.py): nobody else may pay it, and until then nothing of it is paid. """
        self.plan: Plan | None = None
        """ be: its turns; None: the slot waits for no other slot. """
        self.page.write(self.grant)

    @property
    def job(self) -> str:
        """For whom the slot is, a claim, pod or process; empty: not known. Slots with the same job belong together."""
        if self.claim is not None:
            return self.claim.job
        owner = self.owner and f"process {self.owner.process_id}, started at {self.owner.started}"
        return f"pod {self.holder}" if self.holder else owner or ""

    def set(
        self,
        *,
        window_share_ns: int | None = None,
        memory_limit_bytes: int | None = None,
        request_milli: int | None = None,
        limit_milli: int | None = None,
        known_again: bool = True,
    ) -> bool:
        """Change the given values of the grant; return whether any differed.

        `known_again`: processes that have not joined may know the limit, also if they were made to forget it.
        """
        given: dict[str, Any] = {
            "window_share_ns": window_share_ns,
            "memory_limit_bytes": memory_limit_bytes,
            "request_milli": request_milli,
            "limit_milli": limit_milli,
        }
        changed = {name: each for name, each in given.items() if each is not None and each != getattr(self.grant, name)}
        if changed:
            self._write(self.grant._replace(**changed))
        if memory_limit_bytes is not None:
            # Also an unchanged one: what gives slots to containers removes the file.
            known_limit.write(self.directory, self.grant.memory_limit_bytes, again=known_again)
        return bool(changed)

    def share_memory(self, sharing: MemorySharing) -> bool:
        """Change how the slot shares memory; return whether that differs."""
        if sharing == self.memory_sharing:
            return False
        self.memory_sharing = sharing
        shared: dict[str, Any] = {
            "memory_wait_ns": sharing.patience_ns(self.role),
            "parks": sharing.parks,
            "unified": self._unified(sharing),
            "memory_request_bytes": sharing.request_bytes if sharing.unified else 0,
        }
        if any(value != getattr(self.grant, name) for name, value in shared.items()):
            self._write(self.grant._replace(**shared))
        return True

    def _unified(self, sharing: MemorySharing) -> layout.Unified:
        """Return how managed memory takes the place of device memory."""
        if not sharing.unified:
            return layout.Unified.NONE
        return layout.Unified.BEYOND if self.pages_cost_time_only else layout.Unified.WITHIN

    def write_known_limit(self) -> None:
        """Write the limit of memory where processes find it that have not joined."""
        known_limit.write(self.directory, self.grant.memory_limit_bytes)

    def begin_again(self) -> None:
        """Forget how an earlier holder shared memory, and whether its processes were away."""
        self.share_memory(MemorySharing())
        self.parking = SlotParking(self.parking.number)
        if self.parking.ask(False):
            self.write_park()

    def write_park(self) -> None:
        """Write the number of the last wish that its processes leave or come back."""
        self.page.set_park(self.parking.number)

    def _write(self, grant: agent_pages.Grant) -> None:
        self.grant = grant
        self.page.write(grant)

    def close(self) -> None:
        """Close the page and what the clients learnt; the directory and the file stay."""
        self.page.close()
        self.knowledge.close()

    def remove(self) -> None:
        """Close the slot and remove its directory."""
        self.close()
        with contextlib.suppress(OSError):
            os.unlink(self.directory / SOCKET)
        shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def text(self) -> str:
        """What the next agent needs to know about the slot, as JSON."""
        owner = self.owner and [self.owner.process_id, self.owner.started]
        return json.dumps(
            {
                "name": self.name,
                "role": int(self.role),
                "permanent": self.permanent,
                "memory_limit_bytes": self.grant.memory_limit_bytes,
                "request_milli": self.grant.request_milli,
                "limit_milli": self.grant.limit_milli,
                "owner": owner,
                "sharers": [[each.process_id, each.started] for each in self.sharers],
                "rule": self.rule,
                "holder": self.holder_text,
                "claim": self.claim.model_dump_json() if self.claim is not None else "",
                "memory_request_bytes": self.memory_sharing.request_bytes,
                "memory_parks": self.memory_sharing.parks,
                "memory_unified": self.memory_sharing.unified,
                "memory_wait_ms": self.memory_sharing.wait_ms,
                "park": self.parking.number,
                "wished_away": self.parking.is_wished_away,
                "left_bytes": self.parking.left_bytes,
            }
        )


def set_plans(slots: Mapping[str, Slot], plans: Mapping[str, Plan]) -> None:
    """Change the turns of slots; a slot that is not in ``plans`` waits for no other slot."""
    changed = []
    for name, slot in slots.items():
        plan = plans.get(name)
        if plan != slot.plan:
            slot.plan = plan
            changed.append((slot.page, plan))
    agent_pages.write_plans(changed)
