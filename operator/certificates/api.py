"""The interface to the API server that the certificates need. Tests implement it in memory."""

from collections.abc import Mapping
from typing import Any, Protocol

from orion.api_server.requests import ApiError

__all__ = ["Api", "ApiError", "get_or_none"]


class Api(Protocol):
    """Reads and writes objects. `ApiServer` implements it. Every method can raise `ApiError`."""

    async def get(self, path: str, accept: str = ..., **query: str) -> dict[str, Any]:
        """Return an object or a list."""

    async def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Create an object, and return the stored object."""

    async def put(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Replace an object, and return the stored object."""


async def get_or_none(api: Api, path: str) -> dict[str, Any] | None:
    """Return an object, or None if it does not exist.

    Raises:
        ApiError: the API server does not answer, or forbids the request.
    """
    try:
        return await api.get(path)
    except ApiError as error:
        if error.status != 404:
            raise
        return None
