"""One GPU with everything that serves it: its shared state, its sockets, and the actions of each check."""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from orion.errors import Conflict, Invalid
from orion.hook import join, layout
from orion.node_agent.clients.client import Client
from orion.node_agent.clients.counters import Counters
from orion.node_agent.clients.jobs import Jobs
from orion.node_agent.clients.joining import Joining
from orion.node_agent.clients.shared_gpu import SharedGpu
from orion.node_agent.pages.policy_words import Policy
from orion.node_agent.sharing import moving, policies
from orion.node_agent.sharing.ceilings import Ceilings
from orion.node_agent.sharing.conditions import Conditions
from orion.node_agent.sharing.joint import Agreement
from orion.node_agent.sharing.turn_lengths import TurnLengths
from orion.node_agent.sharing.turns import Turns
from orion.node_agent.sharing.usage import Usage
from orion.node_agent.sharing.windows import Activity, Look
from orion.node_agent.slots.holders import Holders
from orion.node_agent.slots.knowledge import Row
from orion.node_agent.slots.slot import Slot, set_plans

_CEILINGS_SECONDS, _WATCHED_SECONDS, _CLIENTS_SECONDS, _IDLE_SECONDS = 0.025, 0.07, 0.1, 0.5
""" The time between two checks: while hp uses the GPU with a limit; while hp with a limit is idle; without turns; and
while clients are idle. """
_IDLE_AFTER_NS = 2_000_000_000
""" Clients are idle after this time without a launch, join or leave. """
_CONDITIONS_NS = 1_000_000_000
_REST_NS = 5_000_000_000
""" For so long clients that say nothing are not looked at. """
_USES_ALL = 0.02
""" hp that is busy for its request, less this part of the time, could use more. """
_LEFT_NOTHING = 0.01
""" hp that leaves be less than this part of the time leaves nothing. """

Notify = Callable[["ServedGpu"], None]


class ServedGpu:
    """A GPU with everything that serves it.

    Args:
        shared_gpu: the per-GPU shared state.
        counters: shared by all GPUs.
        jobs: shared by all GPUs.
        agreement: shared by all GPUs.
        pending_max: maximum number of connections of each slot that have not sent their first message.
        save: writes the state file.
        changed: called when clients joined or left.
        lengths: of turns.
        room: answers a client that found no room on the GPU for so many bytes, or asks first.
    """

    def __init__(
        self,
        shared_gpu: SharedGpu,
        counters: Counters,
        jobs: Jobs,
        agreement: Agreement,
        pending_max: int,
        save: Notify,
        changed: Notify,
        lengths: TurnLengths,
        room: Callable[[Client, int], join.CreditAnswer],
    ) -> None:
        self.shared_gpu = shared_gpu
        self.joining = Joining(
            self.shared_gpu, counters, jobs, pending_max, lambda: save(self), lambda: changed(self), self._wishes, room
        )
        self._jobs, self._agreement = jobs, agreement
        self.activity = Activity(self.shared_gpu)
        self._lengths = lengths
        self.turns = Turns(lengths)
        self.ceilings = Ceilings(shared_gpu.gpu.uuid, agreement.hp_parts)
        self.usage = Usage()
        self.conditions = Conditions(self.shared_gpu)
        self.unsaved = True
        self.text = ""
        """ The GPU's part of the state file. """
        self.deciding_share = ""
        """ NAMESPACE/NAME of the GPUShare that decides the policy; empty: none does, so administrators may set it. """
        self._conditions_ns = self._looked_at_clients_ns = 0
        self._looked_ns = self._active_ns = time.monotonic_ns()

    def look(self, now_ns: int) -> None:
        """Check the clients."""
        self._looked_ns = now_ns  # also if the check fails, so that the next one comes in its time
        if self._rests(now_ns):
            self.usage.skip(self.activity.skip())
        else:
            self._look_at_clients(now_ns)
        if now_ns - self._conditions_ns > _CONDITIONS_NS:
            self._conditions_ns = now_ns
            self.conditions.look()
            for slot in self.shared_gpu.slots.values():
                slot.knowledge.save()

    def _look_at_clients(self, now_ns: int) -> None:
        self._looked_at_clients_ns = 0  # if this fails, the next check makes up for it
        self.joining.look(now_ns)
        look = self.activity.look()
        self.activity.share_out()
        self._plan(look)
        self._looked_at_clients_ns = now_ns
        if look.anything or self.shared_gpu.stopped:
            self._active_ns = now_ns

    def _rests(self, now_ns: int) -> bool:
        """Return whether a check would see nothing new of the clients. Checks are most of what idle slots cost."""
        if now_ns - self._active_ns <= _IDLE_AFTER_NS or now_ns - self._looked_at_clients_ns >= _REST_NS:
            return False
        # Plans have to be renewed, and jobs depend on what happens on other GPUs.
        plans = self.turns.plans or self.ceilings.plans or self.ceilings.watched
        has_jobs = any(slot.job for slot in self.shared_gpu.slots.values())
        return not plans and not has_jobs and self.activity.rests()

    def note_change(self) -> None:
        """Note that clients have joined or left."""
        self.unsaved, self._active_ns = True, time.monotonic_ns()

    def set_policy(self, policy: Policy) -> None:
        """Set the GPU's policy for an administrator.

        Raises:
            Conflict: a GPUShare decides the policy.
            Invalid: clients run under MPS, and MPS alone costs hp more than the policy allows.
        """
        if self.deciding_share:
            raise Conflict(
                f"GPUShare {self.deciding_share} decides the policy of GPU {self.shared_gpu.gpu.uuid}, as its hp pod "
                "has a slot there; change the share"
            )
        unkept = policies.unkept(policy)
        if unkept and any(client.record.shares_context for client in self.shared_gpu.clients.values() if client.ready):
            raise Invalid(unkept)
        self.shared_gpu.default_policy = policy
        self._apply(policy)

    def decide_policy(self, policy: Policy | None, share: str) -> bool:
        """Apply the policy of a GPUShare; None: the default policy. Return whether the GPU's policy changed.

        If the policy makes a promise that cannot be kept, the agent applies it as far as possible and reports a
        condition. An exception would not help, because no person would see it.
        """
        applied = policy or self.shared_gpu.default_policy
        if (self.deciding_share, self.shared_gpu.policy) == (share, applied):
            return False
        self.deciding_share = share
        self._apply(applied)
        return True

    def _apply(self, policy: Policy) -> None:
        self.shared_gpu.set_policy(policy)
        self.activity.share_out()
        self.conditions.look()

    def set_profile(self, name: str, rows: Iterable[Row]) -> None:
        """Set a profile for a slot's clients, current and later ones.

        Raises:
            NotFound: there is no such slot.
            Invalid: a row has a value that no kernel can have.
        """
        slot = self.shared_gpu.slot(name)
        try:
            slot.knowledge.set_profile(rows)
        except ValueError as error:
            raise Invalid(str(error)) from None
        for client in self.shared_gpu.of_slot(slot):
            if client.ready:
                client.inform()

    def current_text(self) -> str:
        """Return the GPU's part of the state file, rebuilt after a change."""
        if self.unsaved:
            self.text = self.shared_gpu.text
            self.unsaved = False
        return self.text

    def stop(self) -> None:
        """Close everything. Clients continue, and no slot waits for another one, since no agent could end the wait."""
        self.release_all()
        self._agreement.note(self.shared_gpu.gpu.uuid, {}, 0)
        self.joining.stop()
        self.shared_gpu.page.close()
        for slot in self.shared_gpu.slots.values():
            slot.close()

    def release_all(self) -> None:
        """Let no slot wait, neither for another one nor because of its limit."""
        self._end_turns()
        self.ceilings.rest()
        self._publish()

    @property
    def look_seconds(self) -> float:
        """The time until the next check: the longer, the longer the plans that it renews stay right."""
        if self.ceilings.active:
            return _CEILINGS_SECONDS
        if self.turns.competing:
            seconds = self.turns.look_ns / 1e9
        else:
            seconds = _IDLE_SECONDS if self._looked_ns - self._active_ns > _IDLE_AFTER_NS else _CLIENTS_SECONDS
        return min(seconds, _WATCHED_SECONDS) if self.ceilings.watched else seconds

    def seconds_left(self, now_ns: int) -> float:
        """Return the time until the next check."""
        return self.look_seconds - (now_ns - self._looked_ns) / 1e9

    def _plan(self, look: Look) -> None:
        """Plan when slots may launch: the turns of the be slots, and hp slots that have a limit."""
        slots = self.shared_gpu.slots
        hp_slots = [slot for slot in slots.values() if slot.role is layout.Role.HP]
        limits = {slot.name: (slot.grant.limit_milli or 1_000) / 1_000 for slot in hp_slots}
        jobs = {slot.name: slot.job for slot in hp_slots}
        self.ceilings.look(look.now_ns, look.hp_used_ns, limits, self._sure(look), jobs)
        took_turns = self.turns.competing
        if turns := policies.takes_turns(self.shared_gpu.policy, slots.values()):
            self._take_turns(look)
        else:
            self._end_turns()
            self._agreement.note(self.shared_gpu.gpu.uuid, {}, 0)
        self.usage.look(look, self.turns.accounts if turns and took_turns else None)
        self._publish()

    def _end_turns(self) -> None:
        """End the turns, and all accounts with them: nobody waits, owes or is owed."""
        self.turns = Turns(self._lengths)

    def _take_turns(self, look: Look) -> None:
        uuid, slots = self.shared_gpu.gpu.uuid, self.shared_gpu.slots
        jobs = {name: slots[name].job for name in look.demands if self._jobs.spans_gpus(slots[name].job)}
        for name, job in jobs.items():
            # A job is not to blame for hp that leaves nothing of one of its GPUs.
            if look.demands[name].reported_ns or look.demands[name].launched or look.left < _LEFT_NOTHING:
                self._agreement.progressed(job, look.now_ns)
        agreed = self._agreement.windows(uuid, look.now_ns) if jobs else {}
        windows = {name: agreed[job] for name, job in jobs.items() if job in agreed}
        demands = look.demands | self.activity.without_clients(look, self.turns.accounts.debtors)
        clients = self.shared_gpu.clients.values()
        average_ns = moving.shortest_average_ns(self.shared_gpu.gpu.memory_bytes, clients, demands)
        cycle_ns = self._agreement.cycle_ns
        self.turns.look(
            look.now_ns,
            look.left,
            demands,
            look.together,
            windows,
            cycle_ns,
            average_ns,
            look.hp_stall_ns,
            look.closed,
        )
        accounts = self.turns.accounts
        # Where hp leaves nothing a job cannot pay, and need not wait elsewhere for that.
        debts = accounts.debts_of_jobs(jobs) if look.left >= _LEFT_NOTHING else {}
        due = accounts.due_to_jobs(look.now_ns, jobs) if jobs else {}
        self._agreement.note(uuid, due, len(look.demands), debts)

    def _sure(self, look: Look) -> float:
        """Return hp's request if hp uses all of it and be has work; else 1."""
        policy = self.shared_gpu.policy
        request = 1 - policy.minimum_share_milli / 1_000 if policies.gates(policy) else 1.0
        # Beside an hp that pauses, be has its time without a floor.
        uses_all = self.shared_gpu.hp_busy_ratio > request - _USES_ALL
        return request if uses_all and any(demand.waiting for demand in look.demands.values()) else 1.0

    def _wishes(self, slot: Slot, wish: int) -> None:
        """A client hands back its slot's turn, or asks for one."""
        now = time.monotonic_ns()
        if wish == join.TurnWish.WANTED:
            changed = self.turns.ask(slot.name, now, () if self.turns.competing else self._working() - {slot.name})
        else:
            idle = not any(client.record.wants_gpu for client in self.shared_gpu.of_slot(slot))
            changed = idle and self.turns.hand_back(slot.name, now)
        if changed:
            self._publish()

    def _working(self) -> set[str]:
        """Return the slots with be work that waits or is in flight."""
        return {client.slot.name for client in self.shared_gpu.clients.values() if client.record.wants_gpu}

    def _publish(self) -> None:
        set_plans(self.shared_gpu.slots, {**self.turns.plans, **self.ceilings.plans})


class ServesGpus(Protocol):
    """What many parts need of an agent: the GPUs that it serves."""

    @property
    def gpus(self) -> Mapping[str, ServedGpu]:
        """The served GPUs by UUID; more may come later."""


class Serves(ServesGpus, Protocol):
    """The GPUs that an agent serves, and the holders of their slots."""

    @property
    def holders(self) -> Holders:
        """Who holds the slots; replaced once the agent has joined its cluster."""
