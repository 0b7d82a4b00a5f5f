"""Prepares claims for pods, and unprepares them: from the scheduler's allocation to slots, a record and a CDI file.

The order of the steps makes each of them repeatable, since the driver may be killed between any two. Prepare: the agent
gives the slots, the record is on the disk, the sources of the mounts exist, the CDI file exists, the kubelet gets its
answer. Unprepare: the CDI file is gone, the agent takes the slots back, the record is gone. The kubelet repeats a call
whose answer it did not get, and a call that repeats a step changes nothing.

Claims are prepared side by side; two calls for one claim wait for each other. The kubelet gives up a call at its
deadline; what such a call writes just then is written before the next call for the claim begins.
"""

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Callable

from orion.crds.node_configuration import DeviceListStrategy, NodeSettings, Preload
from orion.dra_driver import claims
from orion.dra_driver.cdi_files import CdiFiles
from orion.dra_driver.claim_locks import ClaimLocks
from orion.dra_driver.claims import AllocatedClaim
from orion.dra_driver.giving import Giving
from orion.dra_driver.holding import Holding
from orion.dra_driver.names import CLAIM_KIND, cdi_name
from orion.dra_driver.reading import ClaimReader
from orion.dra_driver.records import GivenShare, Record, Records
from orion.dra_driver.threads import run_to_end
from orion.errors import Exhausted, Invalid, OrionError, Unavailable
from orion.injection import cdi, mps
from orion.injection.agent_link import AgentLink
from orion.injection.current import CurrentSnapshot
from orion.injection.describing import Places, describe
from orion.injection.mount_sources import make_slot_directory

RELEASE_SECONDS = 5.0
""" How long giving back waits for an agent. Without one, the driver remembers to tell the next. """

_log = logging.getLogger(__name__)


class Preparer:
    """Prepares and unprepares claims.

    Args:
        reader: reads claims from the API server.
        link: the connection to the agent.
        current: the agent's last snapshot.
        giving: gives slots to claims.
        holding: holds the restarts of containers.
        records: what each claim was given.
        files: the claims' CDI files.
        places: where on the node the things are that containers get.
        settings: returns the settings now in force.
        boot: the id of this boot.
        locks: of the claims.
        untold: called after a claim was given back and no agent answered: one that is only slow has to learn it.
    """

    def __init__(
        self,
        reader: ClaimReader,
        link: AgentLink,
        current: CurrentSnapshot,
        giving: Giving,
        holding: Holding,
        records: Records,
        files: CdiFiles,
        places: Places,
        settings: Callable[[], NodeSettings],
        boot: str,
        locks: ClaimLocks,
        untold: Callable[[], None],
    ) -> None:
        self._reader, self._link, self._current = reader, link, current
        self._giving, self._holding = giving, holding
        self._records, self._files, self._places = records, files, places
        self._settings, self._boot, self._locks, self._untold = settings, boot, locks, untold
        self._held: set[str] = set()
        """ The claims whose CDI file holds their containers' restarts. """

    async def prepare(self, namespace: str, name: str, uid: str, deadline: float) -> Record:
        """Prepare a claim; return what it was given.

        Args:
            namespace: the claim's namespace.
            name: the claim's name.
            uid: the claim's uid.
            deadline: until when to wait for what is not there yet (in seconds, monotonic).

        Raises:
            Invalid, NotFound: the claim can never be prepared.
            Unavailable: somebody did not answer in time, or a slot was not free in time.
            Exhausted: the node's disk is full.
        """
        async with self._locks.of(uid, deadline, f"claim {namespace}/{name}"):
            claim = claims.read(await self._reader.read(namespace, name, deadline), uid)
            async with self._giving.giving(claim, deadline) as given:
                record = self._record(claim, given)
                await run_to_end(self._keep, record)
            return record

    async def unprepare(self, namespace: str, name: str, uid: str) -> None:
        """Take back what a claim was given; of an unknown claim, nothing.

        Raises:
            Exhausted, Invalid, Unavailable: a step failed; the kubelet tries again.
        """
        async with self._locks.of(uid):
            known = await run_to_end(self._take_file, uid)
            self._held.discard(uid)
            if await self._link.release(uid, RELEASE_SECONDS):
                await run_to_end(self._records.remove, uid)
            else:
                _log.warning("claims: %s/%s is given back; the next agent will learn it", namespace, name)
                known = known or Record(boot=self._boot, uid=uid, namespace=namespace, name=name, pods=(), shares=())
                await run_to_end(self._records.save, known.model_copy(update={"released": True}))
                self._untold()

    def restore(self) -> None:
        """Make the files of all prepared claims again, and remove those of no claim.

        Raises:
            Exhausted: the hook cannot be installed on the node.
        """
        self._places.files.install()
        for record in self._records.all():
            try:
                if not record.released:
                    self._make_files(record)
            except OrionError as error:
                _log.error("claims: the files of %s/%s cannot be made again: %s", record.namespace, record.name, error)
        for uid in self._files.uids():
            if not self._records.has_file(uid):
                with contextlib.suppress(Exhausted):
                    self._files.remove(uid)
                    _log.info("claims: the CDI file of %s belongs to no claim, and is removed", uid)

    async def renew(self, *, everything: bool = False) -> None:
        """Write the CDI files again of the claims whose pods are to be held now, or not any more.

        Args:
            everything: write all files that differ, since another driver may have written them.
        """

        async def renew(record: Record) -> None:
            try:
                async with self._locks.of(record.uid):
                    now = self._records.of(record.uid)
                    if now is not None and not now.released:
                        await run_to_end(self._make_files, now)
            except OrionError as error:
                _log.error("claims: the files of %s/%s cannot be written: %s", record.namespace, record.name, error)

        try:
            await asyncio.to_thread(self._records.refresh)
        except Exhausted as error:
            _log.error("claims: %s", error)
        records = self._records.all()
        changed = [each for each in records if bool(self._holding.why(each.pods)) != (each.uid in self._held)]
        await asyncio.gather(*map(renew, records if everything else changed))

    async def sweep(self) -> None:
        """Remove the hook's earlier versions that no claim mounts; none while it is not known what a claim mounts."""
        self._places.files.touch()
        if not self._records.unread and all(self._records.of(uid) for uid in self._files.uids()):
            sources = {source for record in self._records.all() for source in record.mount_sources}
            await asyncio.to_thread(self._places.files.sweep, sources)

    def _record(self, claim: AllocatedClaim, given: list[GivenShare]) -> Record:
        """Describe what the containers of each request get: the same as before, if the claim was prepared in this boot.

        The hook always comes by /etc/ld.so.preload. LD_PRELOAD in a CDI file would replace the pod's own, and a claim
        does not show whether a webhook has seen its pods.

        Raises:
            Invalid: the configuration or the GPUs' modes do not permit it.
            Unavailable: the driver's files are missing, or the GPU is gone.
        """
        snapshot = self._current.snapshot
        if snapshot is None or not all(share.slot.gpu in snapshot.gpus for share in given):
            raise Unavailable("the node's agent does not offer the GPU any more; the kubelet tries again")
        before = self._records.of(claim.uid)
        if before is not None and (before.boot, before.shares) == (self._boot, tuple(given)) and not before.released:
            return before.model_copy(update={"pods": claim.pods})  # containers of other pods may have this mounted
        settings = self._settings().model_copy(update={"preload": Preload.FILE})
        if settings.device_list_strategy is DeviceListStrategy.CDI_ANNOTATIONS:
            raise Invalid(
                "deviceListStrategy is cdi-annotations, and the kubelet passes no annotations for claims: set it to "
                "cdi-cri, which gives the same devices"
            )
        by_request: dict[str, list[GivenShare]] = defaultdict(list)
        for share in given:
            by_request[share.request].append(share)
        slots = {request: [each.slot for each in shares] for request, shares in by_request.items()}
        described = {request: describe(self._places, each, snapshot, settings) for request, each in slots.items()}
        devices = {cdi_name(claim.uid, request): each for request, each in described.items()}
        return Record(
            boot=self._boot,
            uid=claim.uid,
            namespace=claim.namespace,
            name=claim.name,
            pods=claim.pods,
            shares=tuple(given),
            specification=cdi.specification(CLAIM_KIND, devices),
            cdi_names={request: each.cdi_names for request, each in described.items() if each.cdi_names},
        )

    def _keep(self, record: Record) -> None:
        """Write the record, then the files.

        Raises:
            Exhausted: the node's disk is full.
        """
        self._records.save(record)
        self._make_files(record)

    def _take_file(self, uid: str) -> Record | None:
        """Remove a claim's CDI file; return the claim's record, if there is one.

        Raises:
            Exhausted: the file system rejects it.
        """
        self._records.refresh()
        self._files.remove(uid)
        return self._records.of(uid)

    def _make_files(self, record: Record) -> None:
        """Make the sources of the mounts, then the CDI file.

        Raises:
            Exhausted: the node's disk is full.
        """
        self._places.files.install()
        self._places.files.repair(record.mount_sources)
        for share in record.shares:
            make_slot_directory(self._places.root, share.slot)
            mps.make(self._places.root, [share.slot.gpu])
        specification = self._holding.specification(record)
        self._files.write(record.uid, specification)
        (self._held.discard if specification is record.specification else self._held.add)(record.uid)
        if not self._records.has_file(record.uid):  # another driver has unprepared the claim meanwhile
            self._files.remove(record.uid)
