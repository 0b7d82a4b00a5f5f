"""Models of AdmissionReview (admission.k8s.io/v1): the API server's requests and the webhook's responses.

The models contain only the fields that the webhook uses. A request that lacks one of them gets HTTP status 400, never a
denial.
"""

import base64
import json
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from orion.operator.webhook.decisions import Decision, Outcome
from orion.operator.webhook.patching import Operation, difference

PATH = "/admit"
""" The URL path to which the API server sends reviews. """

API_VERSION: Literal["admission.k8s.io/v1"] = "admission.k8s.io/v1"
KIND: Literal["AdmissionReview"] = "AdmissionReview"
TEXT_MAX = 1_000
""" Characters of a sentence in an answer. Sentences quote the pod, of which a tenant may make a field of 100 KB. """
_END = 400
_WARNING_MAX = 250
""" Characters. The API server cuts a warning after 256 characters, and drops warnings when all together are too long.
"""


def shortened(text: str) -> str:
    """Return a sentence for an answer. If it is too long, its middle is left out: its end says what to do."""
    if len(text) <= TEXT_MAX:
        return text
    cut = " [...] "
    return text[: TEXT_MAX - _END - len(cut)] + cut + text[-_END:]


class _Message(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)


class Resource(_Message):
    """The resource that is being written."""

    group: str = ""
    version: str
    resource: str


class Request(_Message):
    """The request in an AdmissionReview."""

    uid: str = Field(min_length=1)
    resource: Resource
    sub_resource: str = ""
    name: str = ""
    namespace: str = ""
    operation: Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]
    object: dict[str, Any] | None = None
    old_object: dict[str, Any] | None = None
    dry_run: bool = False


class Question(_Message):
    """An AdmissionReview that the API server sends."""

    api_version: Literal["admission.k8s.io/v1"]
    kind: Literal["AdmissionReview"]
    request: Request


class Status(_Message):
    """Why a request is denied. The API server returns it to the user."""

    code: int
    reason: str
    message: str


class Response(_Message):
    """The response in an AdmissionReview."""

    uid: str
    allowed: bool
    status: Status | None = None
    patch_type: Literal["JSONPatch"] | None = None
    patch: str | None = None
    """ A JSON patch, in base64. """
    warnings: list[str] | None = None
    audit_annotations: dict[str, str] | None = None


class Answer(_Message):
    """An AdmissionReview that the webhook returns."""

    api_version: Literal["admission.k8s.io/v1"] = API_VERSION
    kind: Literal["AdmissionReview"] = KIND
    response: Response


def answer(request: Request, decision: Decision) -> bytes:
    """Return the AdmissionReview for a decision, as JSON."""
    if decision.outcome is Outcome.REFUSED:
        status = Status(code=403, reason="Forbidden", message=shortened(decision.sentence))
        response = Response(
            uid=request.uid, allowed=False, status=status, audit_annotations={"reason": str(decision.reason)}
        )
    else:
        operations = difference(request.object, decision.pod) if decision.outcome is Outcome.PATCHED else []
        response = Response(
            uid=request.uid,
            allowed=True,
            patch_type="JSONPatch" if operations else None,
            patch=_encoded(operations) if operations else None,
            warnings=[f"orion: {caution}"[:_WARNING_MAX] for caution in decision.cautions] or None,
            audit_annotations=_audit(decision),
        )
    return Answer(response=response).model_dump_json(by_alias=True, exclude_none=True).encode()


def _encoded(operations: Sequence[Operation]) -> str:
    return base64.b64encode(json.dumps(operations, separators=(",", ":")).encode()).decode()


def _audit(decision: Decision) -> dict[str, str] | None:
    return {"share": decision.share} if decision.share else None
