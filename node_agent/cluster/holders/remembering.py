"""Slots' holders in the state file. The next agent knows them before the kubelet and the operator have answered."""

from collections.abc import Mapping

from pydantic import BaseModel, ValidationError

from orion.node_agent.cluster.holders.resolving import ResolvedHolder
from orion.node_agent.cluster.pod_resources import SlotKey
from orion.node_agent.sharing.served import ServedGpu
from orion.node_agent.slots.holders import Holder


class RememberedHolder(BaseModel):
    """A holder in the state file; the grant is the last readable one."""

    namespace: str
    pod: str
    container: str
    uid: str
    created: str
    grant: str | None
    started: bool = True
    """ The pod was allowed to start in the slot. Earlier versions refused no pod. """

    @classmethod
    def of(cls, resolved: ResolvedHolder, grant: str | None, started: bool) -> "RememberedHolder":
        """Return the entry for the state file."""
        holder = resolved.holder
        return cls(
            namespace=holder.namespace,
            pod=holder.pod,
            container=holder.container,
            uid=holder.uid,
            created=resolved.created,
            grant=grant,
            started=started,
        )

    def as_resolved(self) -> ResolvedHolder:
        """Return the holder that was saved."""
        return ResolvedHolder(Holder(self.namespace, self.pod, self.container, self.uid), self.created, self.grant)


def remembered(gpus: Mapping[str, ServedGpu]) -> dict[SlotKey, RememberedHolder]:
    """Return who held each slot, as the previous agent saved it."""
    found = {}
    for uuid, served in gpus.items():
        for slot in served.shared_gpu.slots.values():
            try:
                if slot.holder_text:
                    found[uuid, slot.name] = RememberedHolder.model_validate_json(slot.holder_text)
            except ValidationError:  # written by a later version; the kubelet will name the holder again
                continue
    return found
