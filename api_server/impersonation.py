"""As whom the user of a kubeconfig acts: `as`, `as-uid`, `as-groups`, `as-user-extra`, as headers of each request."""

from collections.abc import Iterator
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orion.api_server.kubeconfigs import Entry, NoCluster

_OF_NAMES = "!#$&'*+^`|"
""" Characters that a header's name may have, besides those that `quote` keeps: client-go keeps them, too. """


class _Fields(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    user: str = Field(default="", alias="as")
    uid: str = Field(default="", alias="as-uid")
    groups: list[str] = Field(default=[], alias="as-groups")
    extra: dict[str, list[str]] = Field(default={}, alias="as-user-extra")


def impersonation(user: Entry) -> tuple[tuple[str, str], ...]:
    """Return the headers by which the API server takes the user for another one; empty: the user acts as itself.

    Raises:
        NoCluster: a field cannot be read.
    """
    present = {name: value for name, value in user.fields.items() if value is not None}
    try:
        return tuple(_headers(_Fields.model_validate(present)))
    except ValidationError as error:
        place = ".".join(map(str, error.errors()[0]["loc"]))
        raise NoCluster(f"{place} of {user} is unusable: write it as kubectl needs it, or remove it") from error


def _headers(fields: _Fields) -> Iterator[tuple[str, str]]:
    if fields.user:
        yield "Impersonate-User", fields.user
    if fields.uid:
        yield "Impersonate-Uid", fields.uid
    for group in fields.groups:
        yield "Impersonate-Group", group
    for name, values in fields.extra.items():
        for value in values:
            yield f"Impersonate-Extra-{quote(name, safe=_OF_NAMES)}", value
