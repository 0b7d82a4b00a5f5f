"""The parts of a CustomResourceDefinition beside the schema: names, scope, columns, subresources."""

from dataclasses import dataclass
from typing import Literal

from orion.crds.model import GROUP, Model


@dataclass(frozen=True)
class Column:
    """A column of `kubectl get`.

    Args:
        name: the heading.
        path: a JSON path of one value; if it matches several, the API server prints only the first.
        type: the type of the value.
        description: for the CustomResourceDefinition and the documentation.
        wide: whether `kubectl get` shows the column only with `-o wide`.
    """

    name: str
    path: str
    type: Literal["string", "integer", "number", "boolean", "date"]
    description: str
    wide: bool = False


AGE = Column("Age", ".metadata.creationTimestamp", "date", "How long the object has existed.")


def condition_column(kind: str, description: str, *, reason: bool = False, wide: bool = False) -> Column:
    """Return the column that shows a condition's status or reason."""
    member, name = ("reason", "Reason") if reason else ("status", kind)
    return Column(name, f'.status.conditions[?(@.type=="{kind}")].{member}', "string", description, wide)


@dataclass(frozen=True)
class Kind:
    """One kind of the API.

    Args:
        model: the model of the whole object, with `spec` and, if the kind has one, `status`.
        plural: the plural name in lower case, as in URLs.
        singular: the singular name in lower case.
        short: the short names for kubectl.
        scope: whether objects belong to a namespace.
        columns: the columns of `kubectl get`, except the name.
        selectable: JSON paths of fields that a list or a watch may filter by (`--field-selector`).
        status: whether `status` is a subresource, with its own RBAC rules.
    """

    model: type[Model]
    plural: str
    singular: str
    short: tuple[str, ...]
    scope: Literal["Namespaced", "Cluster"]
    columns: tuple[Column, ...]
    selectable: tuple[str, ...] = ()
    status: bool = True

    @property
    def name(self) -> str:
        """The kind's name, such as GPUShare."""
        return self.model.__name__

    @property
    def full_name(self) -> str:
        """The name of the CustomResourceDefinition."""
        return f"{self.plural}.{GROUP}"
