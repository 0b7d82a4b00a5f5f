"""Keeps the driver's records, what the agent knows, and the claims of the cluster in agreement.

They differ after an agent or a driver was away, or after somebody has removed files. The agent learns what the records
say. What belongs to a claim that is gone is given back. Only the API server says that a claim is gone: while it does
not answer, nothing is given back.
"""

import asyncio
import logging
import time
from collections.abc import Mapping

from orion.dra_driver import claims
from orion.dra_driver.claim_locks import ClaimLocks
from orion.dra_driver.giving import Giving
from orion.dra_driver.preparing import RELEASE_SECONDS, Preparer
from orion.dra_driver.reading import ClaimReader
from orion.dra_driver.records import Records
from orion.dra_driver.threads import run_to_end
from orion.errors import Exhausted, OrionError, Unavailable
from orion.injection.agent_link import AgentLink

_READ_SECONDS = 5.0

_log = logging.getLogger(__name__)


class Reconciling:
    """Corrects what differs.

    Args:
        reader: reads claims from the API server.
        link: the connection to the agent.
        giving: gives slots to claims.
        records: what each claim was given.
        preparer: unprepares claims.
        locks: of the claims.
    """

    def __init__(
        self,
        reader: ClaimReader,
        link: AgentLink,
        giving: Giving,
        records: Records,
        preparer: Preparer,
        locks: ClaimLocks,
    ) -> None:
        self._reader, self._link, self._giving = reader, link, giving
        self._records, self._preparer, self._locks = records, preparer, locks
        self._gone: set[str] = set()
        """ The claims that did not exist at the last look. """
        self._named: dict[str, tuple[str, ...]] = {}
        """ By claim, the pods for which it was last read again. """

    async def tell_agent(self) -> bool:
        """Tell a new agent which claims have slots, and which have given theirs back; return whether it knows all."""
        try:
            await asyncio.to_thread(self._records.refresh)
        except Exhausted as error:
            _log.error("claims: %s", error)
            return False
        knows_all = not self._records.unread
        for record in self._records.all():
            try:
                async with self._locks.of(record.uid):
                    await asyncio.to_thread(self._records.refresh)
                    if (now := self._records.of(record.uid)) is None:
                        continue
                    if not now.released:
                        await self._giving.tell_again(now)
                    elif await self._link.release(now.uid, RELEASE_SECONDS):
                        await run_to_end(self._records.remove, now.uid)
                    else:
                        raise Unavailable("it does not answer, and the claim was given back")
            except OrionError as error:
                knows_all = False
                _log.error("claims: the agent does not take over %s/%s: %s", record.namespace, record.name, error)
        return knows_all

    async def name_pods(self, users: Mapping[str, tuple[str, ...]]) -> bool:
        """Read the claims again that other pods use than were named, and tell the agent; once for the same pods.

        Args:
            users: by claim, the names of its pods, as the kubelet lists them.

        Returns:
            Whether all were named; if not, the call must be repeated.
        """
        knows_all = True
        self._named = {uid: pods for uid, pods in self._named.items() if uid in users}
        for uid, pods in users.items():
            if self._named.get(uid) == pods or (record := self._records.of(uid)) is None:
                continue
            self._named[uid] = pods
            try:
                async with self._locks.of(uid):
                    found = await self._reader.read(record.namespace, record.name, time.monotonic() + _READ_SECONDS)
                    now = self._records.of(uid)
                    if now is None or now.released:
                        continue
                    renewed = now.model_copy(update={"pods": claims.read(found, uid).pods})
                    await run_to_end(self._records.save, renewed)
                    await self._giving.tell_again(renewed)
            except OrionError as error:
                _log.warning("claims: the pods of %s/%s are not known: %s", record.namespace, record.name, error)
                del self._named[uid]
                knows_all = False
        return knows_all

    async def remove_gone(self) -> None:
        """Unprepare the claims that have not existed for two calls: a kubelet that has lost its records never will."""
        try:
            await asyncio.to_thread(self._records.refresh)
        except Exhausted as error:
            _log.error("claims: %s", error)
            return
        known = self._records.all()
        gone = {each.uid: each for each in known if await self._reader.is_gone(each.namespace, each.name, each.uid)}
        for uid in gone.keys() & self._gone:
            _log.warning("claims: %s/%s is gone, and its slots are taken back", gone[uid].namespace, gone[uid].name)
            try:
                await self._preparer.unprepare(gone[uid].namespace, gone[uid].name, uid)
            except OrionError as error:
                _log.error("claims: %s/%s cannot be given back: %s", gone[uid].namespace, gone[uid].name, error)
        self._gone = set(gone)

    async def release_unrecorded(self) -> None:
        """Take back the slots of claims that have no record and are gone or placed elsewhere.

        A driver that is killed may have taken a slot and not recorded it, and its kubelet may have lost that claim.
        A claim that still has a device of this node keeps its slot: somebody may have removed the records of running
        pods, and another driver may be about to write one.
        """
        try:
            claims = await self._link.claims(RELEASE_SECONDS)
            for claim in {each.uid: each for each in claims}.values():
                async with self._locks.of(claim.uid):
                    await asyncio.to_thread(self._records.refresh)
                    if self._records.has_file(claim.uid) or not await self._reader.has_left(claim):
                        continue
                    _log.info("claims: the slots of %s/%s have no record: taken back", claim.namespace, claim.name)
                    await self._link.release(claim.uid, RELEASE_SECONDS)
        except OrionError as error:
            _log.error("claims: slots without a record cannot be taken back: %s", error)
