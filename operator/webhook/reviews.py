"""The API server's questions and our answers: AdmissionReview, admission.k8s.io/v1.

Only what is used is read; a question that lacks it is the caller's error (400), never a denial.
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
""" Where the server takes them. """

API_VERSION: Literal["admission.k8s.io/v1"] = "admission.k8s.io/v1"
KIND: Literal["AdmissionReview"] = "AdmissionReview"
_WARNING_MAX = 250
""" The API server cuts what is longer (256 characters), and drops all when they are too long together. """


class _Message(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)


class Resource(_Message):
    """What is being written."""

    group: str = ""
    version: str
    resource: str


class Request(_Message):
    """What the API server asks."""

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
    """An AdmissionReview as it comes."""

    api_version: Literal["admission.k8s.io/v1"]
    kind: Literal["AdmissionReview"]
    request: Request


class Status(_Message):
    """Why not, as the API server passes it on."""

    code: int
    reason: str
    message: str


class Response(_Message):
    """What we say."""

    uid: str
    allowed: bool
    status: Status | None = None
    patch_type: Literal["JSONPatch"] | None = None
    patch: str | None = None
    """ A JSON patch, in base64. """
    warnings: list[str] | None = None
    audit_annotations: dict[str, str] | None = None


class Answer(_Message):
    """An AdmissionReview as it goes."""

    api_version: Literal["admission.k8s.io/v1"] = API_VERSION
    kind: Literal["AdmissionReview"] = KIND
    response: Response


def answer(request: Request, decision: Decision) -> bytes:
    """Return the answer that a decision amounts to, as JSON."""
    if decision.outcome is Outcome.REFUSED:
        status = Status(code=403, reason="Forbidden", message=decision.sentence)
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
