"""What the API server must know of a kind beside its schema: names, scope, columns, subresources."""

from dataclasses import dataclass
from typing import Literal

from orion.crds.model import GROUP, Model


@dataclass(frozen=True)
class Column:
    """A column of `kubectl get`.

    Args:
        name: its head.
        path: a JSON path of one value; the API server prints only the first of several.
        type: of the value.
        description: for `kubectl get -o wide` and documentation.
        wide: shown only with `-o wide`.
    """

    name: str
    path: str
    type: Literal["string", "integer", "number", "boolean", "date"]
    description: str
    wide: bool = False


AGE = Column("Age", ".metadata.creationTimestamp", "date", "How long the object has existed.")


def condition_column(kind: str, description: str, *, reason: bool = False, wide: bool = False) -> Column:
    """Return the column of a condition's status, or of its reason."""
    member, name = ("reason", "Reason") if reason else ("status", kind)
    return Column(name, f'.status.conditions[?(@.type=="{kind}")].{member}', "string", description, wide)


@dataclass(frozen=True)
class Kind:
    """One kind of the API.

    Args:
        model: the whole object, with `spec` and where there is one `status`.
        plural: lower-case, as in URLs.
        singular: the same of one.
        short: what people type instead.
        scope: as in the definition.
        columns: of `kubectl get`, the name not counted.
        selectable: JSON paths of fields by which a list or a watch may be confined (`--field-selector`).
        status: whether `status` is a subresource, with rights of its own.
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
        """Such as GPUShare."""
        return self.model.__name__

    @property
    def full_name(self) -> str:
        """The definition's own name."""
        return f"{self.plural}.{GROUP}"
