"""A ResourceClaim that has a slot: the tenant, whichever pods and containers share the claim.

The DRA driver says for which claim and pods it gave a slot, and with which amounts. So the agent need not ask the
kubelet, and knows this before a container's first instruction. The claim is saved with the slot, for the next agent.
"""

import logging

from pydantic import BaseModel, ConfigDict, Field, ValidationError

_log = logging.getLogger(__name__)


class PodOfClaim(BaseModel):
    """A pod that may use the claim."""

    model_config = ConfigDict(frozen=True, from_attributes=True)

    name: str = Field(min_length=1, max_length=253)
    uid: str = Field(min_length=1, max_length=128)


class Claim(BaseModel):
    """What the driver said of one slot of a claim."""

    model_config = ConfigDict(frozen=True)

    uid: str = Field(min_length=1, max_length=128)
    share: str = Field(max_length=128)
    """ Which of the claim's shares of this GPU the slot is; unique in the claim. """
    namespace: str = Field(min_length=1, max_length=63)
    name: str = Field(min_length=1, max_length=253)
    pods: tuple[PodOfClaim, ...] = Field(default=(), max_length=256)
    memory_bytes: int = Field(default=0, ge=0, lt=2**63)
    """ The memory that the claim reserves; 0: none. """
    time_milli: int = Field(default=0, ge=0, le=1_000)
    """ The part of the GPU's time that the claim reserves, in thousandths; 0: none. """
    first_pod: str = Field(default="", max_length=128)
    """ The uid of the pod that was named first; empty: no pod was named. """
    released: bool = False
    """ The claim has given the slot back, but processes in it still live. """

    @property
    def title(self) -> str:
        """The claim, for sentences."""
        return f"claim {self.namespace}/{self.name}"

    @property
    def job(self) -> str:
        """To which job the claim's slots belong: that of its first pod, also after that pod has ended.

        Processes of the other pods may run on, and those of one pod belong together, whatever claims it uses.
        """
        return f"pod with uid {self.first_pod}" if self.first_pod else f"claim with uid {self.uid}"

    def after(self, before: "Claim | None") -> "Claim":
        """Return the claim with the first pod that it had before, if it was known before."""
        first = before.first_pod if before else next((each.uid for each in self.pods), "")
        return self.model_copy(update={"first_pod": first})

    def is_share(self, other: "Claim") -> bool:
        """Return whether both are the same share of the same claim."""
        return (self.uid, self.share) == (other.uid, other.share)


def remembered_claim(text: str) -> Claim | None:
    """Return the claim that the previous agent saved; None: there is none, or a later version wrote it."""
    try:
        claim = Claim.model_validate_json(text) if text else None
    except ValidationError as error:
        _log.warning("slot: a saved claim cannot be read, the driver names it again: %s", error.errors()[0]["msg"])
        return None
    # An earlier version saved no first pod: its jobs were those of the pods that it named first.
    return claim if claim is None or claim.first_pod else claim.after(None)
