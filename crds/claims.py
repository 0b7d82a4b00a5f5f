"""ResourceClaims of the driver `orion.gpu`: their names, and the claim of a pod that the webhook admits.

Where the driver gives slots by claims, the webhook turns the slots of a pod into one claim. It writes the claim's shape
into an annotation of the pod and names a ResourceClaimTemplate, which the operator makes. The template's name is a hash
of the shape, so pods of the same shape have one template, and a changed GPUShare leads to another one.

Rejected: a webhook that makes the template itself. It would need the right to write, and a review of a pod that is
never created would leave a template behind.
"""

import hashlib
from typing import Annotated, Any, ClassVar

from pydantic import Field

from orion.crds.annotation_text import AnnotationText
from orion.crds.model import GROUP
from orion.crds.places import PLACES_MAX, alternatives
from orion.crds.policy import Mode, Priority
from orion.crds.share import GPUShareSpec

DRIVER = GROUP
TIME, MEMORY = "time", "memory"
""" Capacities of a GPU: thousandths of its time, and bytes. """
SLOTS: dict[str, str] = {Priority.HP: "hpSlots", Priority.BE: "beSlots"}
""" The capacity that one slot of a priority consumes. """
CLASSES = {priority: f"orion-{priority}" for priority in Priority}
""" The DeviceClasses that the chart installs. """

BY_CLASS = tuple(f"deviceclass.resource.kubernetes.io/{name}" for name in CLASSES.values())
""" Resources by which Kubernetes lets a container ask for a device of a class, without a claim and without amounts. """
TEMPLATE_NAMES = "^orion-(hp|be)-[0-9a-f]{16}$"
""" The names that `ClaimShape.template_name` gives. """

CLAIM = "orion"
""" In a pod's spec.resourceClaims: the name of the claim whose slots Orion governs by the pod's annotations. """
SHAPE = f"{GROUP}/claim"
""" On a pod, written by the webhook: the shape of the claim that the template makes. It never changes. """
TEMPLATE_LABEL = f"{GROUP}/template"
""" On a ResourceClaimTemplate, a label that the operator writes: the template is the operator's. """

_API = "/apis/resource.k8s.io/v1"
CLAIMS, TEMPLATES, SLICES = (f"{_API}/resource{plural}" for plural in ("claims", "claimtemplates", "slices"))
""" The paths of all claims, all templates and all slices at the API server. """

GPUS_MAX = 32
""" The most GPUs of one claim: the API server allows so many results. """


class ClaimShape(AnnotationText):
    """What a pod's claim asks for."""

    FORMAT: ClassVar[int] = 1
    """ Increase it when the same shape leads to another template: a template's name stands for its content. """
    what: ClassVar[str] = f"annotation {SHAPE}"
    strictly: ClassVar[bool] = True

    format: Annotated[int, Field(ge=1)] = FORMAT
    priority: Priority
    gpus: Annotated[dict[str, Annotated[int, Field(ge=1, le=GPUS_MAX)]], Field(min_length=1, max_length=GPUS_MAX)]
    """ The number of GPUs by request. A request has the name of a container; each of its GPUs gives one slot. """
    time_milli: Annotated[int, Field(ge=0, le=1_000)] = 0
    """ The part of each GPU's time that the claim reserves, in thousandths. """
    memory_bytes: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """ The memory of each GPU that the claim reserves. """
    mode: Mode | None = None
    """ The mode that the GPUs must have; None: any, but for several GPUs, which must not be in mode mps. """
    selector: Annotated[str | None, Field(min_length=1, max_length=1_024)] = None
    """ A CEL expression that the GPUs must fulfil. """
    in_common: Annotated[str | None, Field(min_length=1, max_length=128)] = None
    """ The attribute of which all GPUs of a request must have the same value. """
    places: Annotated[int | None, Field(ge=1, le=PLACES_MAX)] = None
    """ For how many places the first request asks, so that pods spread over GPUs; None: the first GPU that fits. """

    @property
    def template_name(self) -> str:
        """The name of the template of this shape."""
        return f"{CLASSES[self.priority]}-{hashlib.sha256(self.as_json().encode()).hexdigest()[:16]}"

    def template(self) -> dict[str, Any]:
        """Return the ResourceClaimTemplate, without a namespace."""
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": self.template_name, "labels": {TEMPLATE_LABEL: "true"}},
            "spec": {"spec": {"devices": {"requests": self._requests(), "constraints": self._constraints()}}},
        }

    def _requests(self) -> list[dict[str, Any]]:
        other = next(each for each in Priority if each is not self.priority)
        amounts = {SLOTS[self.priority]: "1", SLOTS[other]: "0"}
        amounts |= {name: str(value) for name, value in ((TIME, self.time_milli), (MEMORY, self.memory_bytes)) if value}
        requests: list[dict[str, Any]] = []
        for name, count in sorted(self.gpus.items()):
            exactly: dict[str, Any] = {
                "deviceClassName": CLASSES[self.priority],
                "allocationMode": "ExactCount",
                "count": count,
                "capacity": {"requests": amounts},
                "selectors": [{"cel": {"expression": each}} for each in self._selectors(count)],
            }
            if self.places and not requests:
                requests.append({"name": name, "firstAvailable": alternatives(exactly, self.places)})
            else:
                requests.append({"name": name, "exactly": exactly})
        return requests

    def _selectors(self, count: int) -> list[str]:
        found = [selector_of_mode(self.mode, True)] if self.mode else []
        if count > 1 and self.mode is None:
            found.append(selector_of_mode(Mode.MPS, False))
        return [*found, *([self.selector] if self.selector else [])]

    def _constraints(self) -> list[dict[str, Any]]:
        several = sorted(name for name, count in self.gpus.items() if count > 1)
        return [{"requests": [name], "matchAttribute": self.in_common} for name in several if self.in_common]


def selector_of_mode(mode: Mode, has: bool) -> str:
    """Return the CEL expression that is true if a GPU has a mode, or if it has another one."""
    return f'device.attributes["{DRIVER}"].mode {"==" if has else "!="} "{mode}"'


def path_in(namespace: str, path: str, name: str = "") -> str:
    """Return the path of a claim or template of a namespace at the API server; without a name, that of all of them.

    Args:
        namespace: the namespace.
        path: the path of all: `CLAIMS` or `TEMPLATES`.
        name: the object's name.
    """
    plural = path.removeprefix(f"{_API}/")
    return f"{_API}/namespaces/{namespace}/{plural}" + (f"/{name}" if name else "")


def shape_of(
    priority: Priority, spec: GPUShareSpec | None, gpus: dict[str, int], places: int | None = None
) -> ClaimShape:
    """Return the shape of a pod's claim.

    Args:
        priority: the pod's priority.
        spec: of the GPUShare that governs the pod; None: none does.
        gpus: the number of GPUs by request.
        places: for how many places the claim asks; None: for none.
    """
    if spec is None:
        return ClaimShape(priority=priority, gpus=gpus, places=places)
    request = spec.compute.request if spec.compute else None
    memory = (spec.memory.request or spec.memory.limit) if spec.memory else None
    devices = spec.devices
    return ClaimShape(
        priority=priority,
        gpus=gpus,
        time_milli=request.milli if request else 0,
        memory_bytes=memory.bytes if memory else 0,
        mode=Mode.MPS if spec.sm_share is not None else None,
        selector=devices.selector if devices else None,
        in_common=devices.in_common if devices else None,
        places=places,
    )
