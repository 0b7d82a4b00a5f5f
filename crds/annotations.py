"""Names of annotations, labels and resources, all in one place, and what a pod's annotations say.

People write names that begin with `orion/`; Orion writes names that begin with `orion.gpu/`, its API group. So nobody
has to ask whether a name may be written by hand, and policies need no list.
"""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from orion.crds.errors import Unreadable
from orion.crds.grant import PodGrant
from orion.crds.metadata import ObjectName
from orion.crds.model import GROUP, Model
from orion.crds.policy import Priority

PREFIX = "orion/"
""" Of what people write: annotations of pods, only when the pod is made, and the label of nodes that opt in. """

WRITTEN = f"{GROUP}/"
""" Of what Orion writes: annotations of pods, labels of nodes, and the resources that it advertises. """

PRIORITY = "orion/priority"
""" On a pod, by its owner: hp or be. """

SHARE = "orion/share"
""" On a pod, by its owner: the name of the GPUShare that governs it, in its namespace. """

CONTAINERS = "orion/containers"
""" On a pod, by its owner: the containers that get slots, separated by commas; absent: all that ask for a GPU. """

OF_PEOPLE = (PRIORITY, SHARE, CONTAINERS)
""" All annotations that people may write. """

GRANT = "orion.gpu/grant"
""" On a pod, by webhook and reconciler alone: what its containers may do, as JSON (`PodGrant`). """

SIMULATED = "orion.gpu/simulated"
""" On a node, by the operator: "true" where its GPUs are simulated. """

GPUS = "orion.gpu/gpus"
""" On a node, by the operator: how many GPUs it offers. """

MODEL = "orion.gpu/gpu-model"
""" On a node, by the operator: the model of its GPUs, in the form of a label. """

MODE = "orion.gpu/mode"
""" On a node, by the operator: timeslice or mps where all of its GPUs are in that mode, else mixed. """

RESOURCES = {priority: f"{WRITTEN}{priority}" for priority in Priority}
""" What a container asks for: slots. """


class PodMarks(Model):
    """What a pod's owner says of it in annotations."""

    priority: Annotated[Priority | None, Field(alias=PRIORITY)] = None
    """ None: not said. """

    share: Annotated[ObjectName | None, Field(alias=SHARE)] = None
    """ None: the share whose selector matches. """

    containers: Annotated[tuple[str, ...] | None, Field(alias=CONTAINERS)] = None
    """ None: all that ask for a GPU. """


def read_marks(annotations: Mapping[str, str]) -> PodMarks:
    """Return what a pod's owner said.

    Raises:
        Unreadable: an annotation of ours has no meaning; the sentence names it.
    """
    priority = annotations.get(PRIORITY)
    if priority is not None and priority not in list(Priority):
        raise Unreadable(f"annotation {PRIORITY} must be hp or be, not {priority[:63]!r}")
    containers = annotations.get(CONTAINERS)
    names = None if containers is None else tuple(name.strip() for name in containers.split(","))
    if names is not None and (not all(names) or len(set(names)) < len(names)):
        raise Unreadable(
            f"annotation {CONTAINERS} must be names of containers separated by commas, each once, not {containers!r}"
        )
    marks = {PRIORITY: priority, SHARE: annotations.get(SHARE), CONTAINERS: names}
    return PodMarks.read({name: value for name, value in marks.items() if value is not None}, "annotation")


def read_grant(annotations: Mapping[str, str]) -> PodGrant | None:
    """Return the grant that a pod carries, or None.

    Raises:
        Unreadable: there is one, and it is no grant.
    """
    text = annotations.get(GRANT)
    return None if text is None else PodGrant.from_json(text, f"annotation {GRANT}")
