"""The status of a GPUShare, which the operator writes: conditions, counts, and rows for the worst affected clients.

A share may govern thousands of processes. So the status has at most `ROWS_MAX` rows, the worst affected first, and the
counts cover the rest. Percentiles and histories are in the metrics.
"""

from typing import Annotated

from pydantic import Field

from orion.crds.clients import ClientRow, Count
from orion.crds.conditions import Conditions
from orion.crds.model import Model
from orion.crds.slot_usage import ShareSlotRow

ROWS_MAX = 64
NAMES_MAX = 16


class PodCounts(Model):
    """The number of pods of the namespace, by their relation to the share."""

    governed: Count = 0
    """ The number of pods that this share governs and that have not ended. """

    running: Count = 0
    """ The number of governed pods that run. """

    parked: Count = 0
    """ The number of governed pods of which a slot is parked: its processes have left the GPU's memory and wait. They
    count as running, too. """

    granted: Count = 0
    """ The number of governed pods whose grant matches the present spec of the share. """

    unannotated: Count = 0
    """ The number of pods that the selector matches but that lack the annotation orion/priority. Orion does not manage
    them. """

    unannotated_names: Annotated[list[Annotated[str, Field(max_length=253)]] | None, Field(max_length=NAMES_MAX)] = None
    """ The names of these pods in alphabetical order. At most 16. """


class ClientCounts(Model):
    """The number of processes of the governed pods that use a GPU, by state."""

    total: Count = 0
    """ The number of processes that the hook has joined to a slot. """

    stopped: Count = 0
    """ The number of joined processes that are stopped by a signal. """

    troubled: Count = 0
    """ The number of joined processes about which a node agent reports a problem. """

    unmanaged: Count = 0
    """ The number of processes of these pods that use a GPU without the hook. """


class GPUShareStatus(Model):
    """The observed state of the share, as the operator reports it for observedGeneration."""

    observed_generation: Annotated[int | None, Field(ge=0)] = None
    """ The metadata.generation of the spec to which this status belongs. """

    conditions: Conditions | None = None
    """ Ready: every governed pod has the grant of this share, and its GPUs have the memory that their pods reserve.
    HookInjected: every process of these pods on a GPU uses the hook. PolicyConflict: a GPU of these pods uses the
    policy of another share. Degraded: a problem affects these pods, or they get less than the share asks for.
    NotEnforced: the share sets fields that have no effect. Parked, where spec.memory.oversubscribe is park: processes
    of these pods have left the GPU's memory, and wait. """

    pods: PodCounts | None = None
    """ The number of pods. """

    gpus: Count | None = None
    """ The number of GPUs that the governed pods use. """

    client_counts: ClientCounts | None = None
    """ The number of processes of the governed pods. """

    clients: Annotated[list[ClientRow] | None, Field(max_length=ROWS_MAX)] = None
    """ Processes of the governed pods, the worst affected first. At most 64. """

    slots: Annotated[list[ShareSlotRow] | None, Field(max_length=ROWS_MAX)] = None
    """ Slots of the governed pods with their GPU time, parked ones first, then those that were charged least of what
    they were due. At most 64. """
