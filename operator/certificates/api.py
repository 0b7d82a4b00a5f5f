"""What the rotation needs of the API server, so that tests can put another in its place."""

from collections.abc import Mapping
from typing import Any, Protocol

from orion.api_server.requests import ApiError

__all__ = ["Api", "ApiError", "get_or_none"]


class Api(Protocol):
    """Reading and writing objects; `ApiServer` is one. Each may raise `ApiError`."""

    async def get(self, path: str, accept: str = ..., **query: str) -> dict[str, Any]:
        """Return an object or a list."""

    async def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Create an object, and return it as it is then."""

    async def put(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Replace an object, and return it as it is then."""


async def get_or_none(api: Api, path: str) -> dict[str, Any] | None:
    """Return an object, or None if there is none.

    Raises:
        ApiError: the API server cannot be asked, or forbids it.
    """
    try:
        return await api.get(path)
    except ApiError as error:
        if error.status != 404:
            raise
        return None
