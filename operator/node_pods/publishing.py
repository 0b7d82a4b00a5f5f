"""Makes this replica's certificate known to the agents: its entry in a ConfigMap, which every replica and agent reads.

The chart makes the ConfigMap. If someone has deleted it, the first replica that notices creates it again, and the
others add their entries. A policy refuses ConfigMaps of other names, because RBAC cannot restrict `create` to a name.
An entry has the name of its replica, so replicas do not overwrite each other. A replica that is killed leaves its
entry: it does no harm, since the key is gone, and the next replica that writes removes it once it has expired.

A replica makes its key and its certificate at its start, and has the key in memory only. The certificate is
self-signed, and agents trust exactly the entries. So no authority exists whose key could be stolen, and a replica that
has ended cannot be imitated. Rejected: the webhook's certificates. Their keys are in a Secret, which all replicas of
the webhook read, and with cert-manager other programs, too.
"""

import asyncio
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus

from orion.api_server.requests import ApiError, ApiServer
from orion.operator.certificates.issuing import read_bundle

ENTRIES_MAX = 64
""" Agents trust all entries, and read them all: entries beyond this number are removed, the ones that end first. """

_WITHDRAW_S = 4.0
""" The process must end in time even if the API server is away. """

_LOG = logging.getLogger(__name__)


class Published:
    """One replica's entry.

    Args:
        api: the API server.
        path: the ConfigMap's path.
        replica: the key of the entry.
    """

    def __init__(self, api: ApiServer, path: str, replica: str) -> None:
        self._api, self._path, self._replica = api, path, replica

    async def publish(self, pem: str) -> None:
        """Write the entry, and remove entries of the past. Writes nothing if nothing must change.

        Raises:
            ApiError: the ConfigMap could not be read, written or created.
        """
        try:
            data = (await self._api.get(self._path)).get("data") or {}
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            await self._create(pem)
            return
        changes: dict[str, str | None] = dict.fromkeys(_superfluous(data, self._replica, datetime.now(UTC)))
        if data.get(self._replica) != pem:
            changes[self._replica] = pem
        if changes:
            await self._api.patch(self._path, {"data": changes})

    async def _create(self, pem: str) -> None:
        folder, _, name = self._path.rpartition("/")
        _LOG.warning("ConfigMap %s does not exist; this replica creates it", name)
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {self._replica: pem}}
        await self._api.post(folder, body)

    async def withdraw(self) -> None:
        """Remove the entry: this replica ends. A failure is not an error: the entry expires."""
        try:
            async with asyncio.timeout(_WITHDRAW_S):
                await self._api.patch(self._path, {"data": {self._replica: None}})
        except (ApiError, TimeoutError) as error:
            why = str(error) or "no answer in time"
            _LOG.info("this replica's certificate stays in its ConfigMap until it expires: %s", why)


def _superfluous(data: Mapping[str, str], own: str, now: datetime) -> list[str]:
    """Return the keys of entries that must go: those that have expired, and the first to expire of too many."""
    bundles = {key: read_bundle(pem.encode()) for key, pem in data.items() if key != own}
    ends = {key: min((each.ends for each in found), default=now) for key, found in bundles.items()}
    living = sorted((key for key, end in ends.items() if end > now), key=lambda key: ends[key], reverse=True)
    kept = set(living[: ENTRIES_MAX - 1])
    return [key for key in ends if key not in kept]
