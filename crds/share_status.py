"""What the operator says of a GPUShare: whether its pods have what it asks, and the clients that fare worst.

Bounded: a share may govern thousands of processes, so their rows are at most `ROWS_MAX`, the worst first, and the
counts speak for the rest. Percentiles and histories live in the metrics, not here.
"""

from typing import Annotated

from pydantic import Field

from orion.crds.clients import ClientRow, Count
from orion.crds.conditions import Conditions
from orion.crds.model import Model

ROWS_MAX = 64
NAMES_MAX = 16


class PodCounts(Model):
    """Pods of the namespace, counted."""

    governed: Count = 0
    """ Pods that this share governs and that have not ended. """

    running: Count = 0
    """ Those of them that run. """

    granted: Count = 0
    """ Those of them whose grant is that of the share as it is now. """

    unannotated: Count = 0
    """ Pods that the selector names but that lack the annotation orion/priority, so they are not managed. """

    unannotated_names: Annotated[list[Annotated[str, Field(max_length=253)]] | None, Field(max_length=NAMES_MAX)] = None
    """ The first of those by name, at most 16. """


class ClientCounts(Model):
    """Processes of the governed pods that use a GPU, counted."""

    total: Count = 0
    """ All that the hook has joined to a slot. """

    stopped: Count = 0
    """ Those whose process is stopped. """

    troubled: Count = 0
    """ Those about which a node agent has something to say. """

    unmanaged: Count = 0
    """ Processes that the GPU knows and the hook does not. """


class GPUShareStatus(Model):
    """What is true of the share, as of observedGeneration."""

    observed_generation: Annotated[int | None, Field(ge=0)] = None
    """ The metadata.generation that the rest was found for. """

    conditions: Conditions | None = None
    """ Ready: every governed pod has the grant of this share. HookInjected: every process of theirs is under the hook.
    PolicyConflict: a GPU runs by the policy of another share. Degraded: something keeps less than the share asks. """

    pods: PodCounts | None = None
    """ How many pods there are. """

    gpus: Count | None = None
    """ How many GPUs they use. """

    client_counts: ClientCounts | None = None
    """ How many processes they have. """

    clients: Annotated[list[ClientRow] | None, Field(max_length=ROWS_MAX)] = None
    """ At most 64 of their processes, those that fare worst first. """
