"""Kubernetes' label selectors as API types. Python code matches them, without a request to the API server."""

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from orion.crds.annotations import PRIORITY_LABEL
from orion.crds.model import Model
from orion.crds.rules import FIELD, Rule

_LABEL_VALUE = "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"
_DNS_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_LABEL_KEY = f"^({_DNS_LABEL}([.]{_DNS_LABEL})*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?$"
CONDITIONS_MAX, VALUES_MAX = 16, 64
_TOO_LARGE = (
    "every pod of the namespace is compared with all of them; give the pods one label of their own, and select by it"
)
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
        Rule(
            "(has(self.matchLabels) ? self.matchLabels.size() : 0) + "
            f"(has(self.matchExpressions) ? self.matchExpressions.size() : 0) <= {CONDITIONS_MAX}",
            f"{FIELD} must not have more than {CONDITIONS_MAX} labels and expressions together: {_TOO_LARGE}",
            "",
            lambda self: len(self.match_labels or ()) + len(self.match_expressions or ()) <= CONDITIONS_MAX,
        ),
        Rule(
            "!has(self.matchExpressions) || "
            "self.matchExpressions.map(each, has(each.values) ? each.values.size() : 0).sum() "
            f"<= {VALUES_MAX}",
            f"{FIELD}.matchExpressions must not have more than {VALUES_MAX} values in all: {_TOO_LARGE}",
            "matchExpressions",
            lambda self: sum(len(each.values or ()) for each in self.match_expressions or ()) <= VALUES_MAX,
        ),
        Rule(
            f"!(has(self.matchLabels) && '{PRIORITY_LABEL}' in self.matchLabels) && "
            f"!(has(self.matchExpressions) && self.matchExpressions.exists(each, each.key == '{PRIORITY_LABEL}'))",
            f"{FIELD} must not name the label {PRIORITY_LABEL}, which a pod gets only after a share is chosen for it; "
            "set spec.priority, and select by a label of your own",
            "",
            lambda self: (
                PRIORITY_LABEL not in (self.match_labels or ())
                and all(each.key != PRIORITY_LABEL for each in self.match_expressions or ())
            ),
        ),
    )


Label = tuple[str, str]
""" A label's key and its value. """


class Matcher:
    """A selector in the form in which labels are compared with it: made once for each share, not for each pod."""

    __slots__ = ("_conditions", "_labels", "anchors")

    def __init__(self, selector: LabelSelector) -> None:
        self._labels = tuple((selector.match_labels or {}).items())
        self._conditions = tuple(
            (each.key, each.operator, frozenset(each.values or ())) for each in selector.match_expressions or ()
        )
        self.anchors: tuple[tuple[Label, ...], ...] = (
            *((label,) for label in self._labels),
            *(
                tuple((key, value) for value in sorted(values))
                for key, operator, values in self._conditions
                if operator == "In"
            ),
        )
        """ Of each group, a pod must have one of the labels. Empty: the selector requires no label with a value. """

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether the selector matches labels. As in Kubernetes, a pod without the label meets NotIn."""
        for key, value in self._labels:
            if labels.get(key) != value:
                return False
        return all(_meets(labels.get(key), operator, values) for key, operator, values in self._conditions)


def _meets(value: str | None, operator: str, values: frozenset[str]) -> bool:
    if operator == "In":
        return value in values
    if operator == "NotIn":
        return value not in values
    return (value is not None) == (operator == "Exists")
