"""One GPU with all that serves it: its shared state, its entrances, and what each look at it leads to."""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from orion.hook import layout
from orion.node_agent.clients.joining import Counters, Joining
from orion.node_agent.clients.shared_gpu import SharedGpu
from orion.node_agent.errors import Conflict, Invalid
from orion.node_agent.pages.policy_words import Policy
from orion.node_agent.sharing import policies
from orion.node_agent.sharing.conditions import Conditions
from orion.node_agent.sharing.fairness import Fairness
from orion.node_agent.sharing.windows import Activity, Look
from orion.node_agent.slots.holders import Holders
from orion.node_agent.slots.knowledge import Row

_HOLD_MS, _HOLD_STEP_MS = 500, 250
""" A hold ends by itself after the first to the sum of both, in case that the agent dies. """
_CONDITIONS_NS = 1_000_000_000

Notify = Callable[["ServedGpu"], None]


class ServedGpu:
    """A GPU with all that serves it.

    Args:
        shared_gpu: the per-GPU shared state.
        counters: shared by all GPUs.
        pending_max: undecided connections that each slot may have.
        save: writes the state file.
        changed: called when clients came or left.
    """

    def __init__(
        self,
        shared_gpu: SharedGpu,
        counters: Counters,
        pending_max: int,
        save: Notify,
        changed: Notify,
    ) -> None:
        self.shared_gpu = shared_gpu
        self.joining = Joining(self.shared_gpu, counters, pending_max, lambda: save(self), lambda: changed(self))
        self.activity = Activity(self.shared_gpu)
        self.fairness = Fairness()
        self.conditions = Conditions(self.shared_gpu)
        self.unsaved = True
        self.text = ""
        """ For the state file. """
        self.contended = False
        """ Several be slots want the GPU, so who gets it has to be looked at often. """
        self.deciding_share = ""
        """ NAMESPACE/NAME of the share that decides how the GPU is shared; empty: none, so administrators do. """
        self._conditions_ns = 0

    def look(self, now_ns: int) -> bool:
        """Look after the clients; return whether anything happened since the last look."""
        self.joining.look(now_ns)
        look = self.activity.look()
        self.activity.share_out()
        self._hold(look)
        if now_ns - self._conditions_ns > _CONDITIONS_NS:
            self._conditions_ns = now_ns
            self.conditions.look()
            for slot in self.shared_gpu.slots.values():
                slot.knowledge.save()
        return look.anything or bool(self.shared_gpu.stopped)

    def set_policy(self, policy: Policy) -> None:
        """Change how the clients share the GPU, as an administrator may while no share decides it.

        Raises:
            Conflict: a share decides it.
            Invalid: clients run under MPS, and that alone costs hp more than the policy allows.
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
        """Let a share decide how the clients share the GPU, or (None) none any more; return whether that is new.

        What cannot be kept is carried out as far as it can be, and a condition says so: nobody waits for an answer.
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
        """Tell a slot's clients, those that come and those that are there, what is known of their kernels.

        Raises:
            NotFound: no such slot.
            Invalid: a row that no kernel can have.
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
        """Return what the state file is to say of it, made again where something has changed."""
        if self.unsaved:
            self.text = self.shared_gpu.text
            self.unsaved = False
        return self.text

    def stop(self) -> None:
        """Let go of everything but the clients, who go on; nobody is held who could not be let go again."""
        self.release_all()
        self.joining.stop()
        self.shared_gpu.page.close()
        for slot in self.shared_gpu.slots.values():
            slot.close()

    def release_all(self) -> None:
        """Hold no slot."""
        self.fairness.rest()
        for slot in self.shared_gpu.slots.values():
            slot.set(held=0)

    def _hold(self, look: Look) -> None:
        """Let the slots wait that are ahead of their share."""
        self.contended = len(look.demands) > 1 and policies.gates(self.shared_gpu.policy)
        if not self.contended:
            self.release_all()
            return
        held = self.fairness.look(look.now_ns, look.elapsed_ns, look.available_ns, look.demands)
        until_ms = (look.now_ns // 1_000_000 // _HOLD_STEP_MS + 1) * _HOLD_STEP_MS + _HOLD_MS
        for slot in self.shared_gpu.slots.values():
            if slot.role is layout.Role.BE and (slot.grant.held or slot.name in held):
                slot.set(held=(until_ms & 0xFFFFFFFF or 1) if slot.name in held else 0)


class Serves(Protocol):
    """What many parts need of an agent: the GPUs that it serves, and who holds their slots."""

    @property
    def gpus(self) -> Mapping[str, ServedGpu]:
        """By UUID; others may come."""

    @property
    def holders(self) -> Holders:
        """As far as anybody knows; in a cluster, others from the time on that it is reached."""
