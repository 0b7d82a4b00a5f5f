"""Kubernetes' label selectors as API types. Python code matches them, without a request to the API server."""

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from orion.crds.model import Model
from orion.crds.rules import FIELD, Rule

_LABEL_VALUE = "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"
_DNS_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_LABEL_KEY = f"^({_DNS_LABEL}([.]{_DNS_LABEL})*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?$"
LabelValue = Annotated[str, Field(max_length=63, pattern=_LABEL_VALUE)]


class Requirement(Model):
    """One condition on a pod's labels."""

    key: Annotated[str, Field(min_length=1, max_length=317, pattern=_LABEL_KEY)]
    """ The label's key. """

    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """ The comparison of the label with the values. """

    values: Annotated[list[LabelValue] | None, Field(max_length=64)] = None
    """ The values of the comparison. In and NotIn need at least one value; Exists and DoesNotExist take none. """

    rules = (
        Rule(
            "(self.operator in ['In', 'NotIn']) == (has(self.values) && self.values.size() > 0)",
            f"{FIELD}.values must hold at least one value for the operators In and NotIn, and none for Exists and "
            "DoesNotExist",
            "values",
            lambda self: (self.operator in ("In", "NotIn")) == bool(self.values),
        ),
    )

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels meet the condition. As in Kubernetes, a pod without the label meets NotIn."""
        if self.operator in ("Exists", "DoesNotExist"):
            return (self.key in labels) == (self.operator == "Exists")
        found = self.key in labels and labels[self.key] in (self.values or ())
        return found == (self.operator == "In")


class LabelSelector(Model):
    """A selector of pods by labels. A pod must meet all of its conditions; an empty selector matches every pod."""

    match_labels: Annotated[dict[str, LabelValue] | None, Field(max_length=32)] = None
    """ Labels that the pod must have, with these values. """

    match_expressions: Annotated[list[Requirement] | None, Field(max_length=16)] = None
    """ Further conditions on the pod's labels. """

    rules = (
        Rule(
            "!has(self.matchLabels) || self.matchLabels.all(key, !format.qualifiedName().validate(key).hasValue())",
            f"{FIELD}.matchLabels must have valid label keys, such as app or example.com/team",
            "matchLabels",
            lambda self: all(re.fullmatch(_LABEL_KEY, key) for key in self.match_labels or ()),
        ),
    )

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether the selector matches a pod with these labels."""
        same = all(labels.get(key) == value for key, value in (self.match_labels or {}).items())
        return same and all(each.matches(labels) for each in self.match_expressions or ())
