"""Says what the GPUs of the cluster lack for pods that wait for their claims.

A pod's Events then have the reason, beside the scheduler's "cannot allocate all claims". ResourceSlices and
ResourceClaims are read when a pod waits. All pods of the same shape get the same answer for a few seconds; an answer
that nothing is missing is good for less time, because the pods wait for something.

If nothing is missing, kube-scheduler may have overlooked room. While it writes a claim, it counts it twice for some
milliseconds: as one that it is about to give, and as one that the API server has (Kubernetes 1.37,
dynamicresources/dra_manager.go, GatherAllocatedState). A pod that it tries then seems to have no room, and nothing that
happens later makes it try the pod again for five minutes. A changed label of a node does.

Rejected: a condition of the pod. The operator would need the right to write the status of all pods, with which it could
make any pod look ready; and `kubectl describe pod` shows the sentence of an Event, and not that of a condition.
Rejected: watches of slices and claims. The operator would keep all claims of the cluster in memory.
Rejected: an annotation of a DeviceClass, a change of which also makes the scheduler try. The operator would need the
right to write classes, which say whose claims are hp. It may write labels of nodes in any case.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus

from orion.api_server.paths import NODES
from orion.api_server.requests import ApiError, ApiServer
from orion.crds.annotations import PLACE_AGAIN
from orion.crds.claims import CLAIMS, DRIVER, SLICES, ClaimShape
from orion.crds.joint_room import lacking_together
from orion.crds.room_of_gpus import Gpu, Request, Taken, gpus_of, lacking, requests_of, taken_by, unchecked

_FRESH_S, _FRESH_NOTHING_S = 2.0, 0.25
""" How long the room that was read counts as current, and an answer that nothing is missing. """
_READS_APART = 10
""" Both times are longer where reading takes long: so many times as long as it took. A large cluster always has pods
that wait, and reading the claims of all its pods takes seconds of the event loop. """
_FRESH_MOST_S = 60.0
""" But no longer: a read may also take long because the API server lets it wait. """
_PLACE_AGAIN_S = 5.0
""" The scheduler tries all pods that wait for GPUs, so the operator asks it no more often. """


@dataclass
class _Room:
    gpus: Sequence[Gpu] = ()
    read: float = float("-inf")
    """ When the reading began; monotonic seconds. """
    took: float = 0.0
    """ How long it took; seconds. """
    said: dict[str, str] = field(default_factory=dict)
    """ The sentence for each shape. """

    def is_older(self, asked: float, seconds: float) -> bool:
        """Return whether the room no longer counts as current for somebody who asked at a time."""
        return asked - self.read > max(seconds, min(_READS_APART * self.took, _FRESH_MOST_S))


class MissingGPUs:
    """What is missing for the shapes of claims.

    Args:
        api: the API server.
        clock: returns seconds that never go back.
    """

    def __init__(self, api: ApiServer, clock: Callable[[], float] = time.monotonic) -> None:
        self._api, self._clock, self._room, self._reading = api, clock, _Room(), asyncio.Lock()
        self._placed_again = float("-inf")
        self._labelled = ""
        """ The node that has the label; it stays where its removal failed. """

    async def look(self, shape: str) -> str:
        """Return what a claim of a shape lacks; empty: nothing. If it lacks nothing, make kube-scheduler try again.

        Args:
            shape: a `ClaimShape` as JSON.

        Raises:
            ApiError: the API server does not answer, or rejects the change of a node.
        """
        asked = self._clock()
        async with self._reading:
            if self._labelled:
                with contextlib.suppress(ApiError):  # the pod waits for its sentence
                    await self._label(self._labelled, None)
            if self._room.is_older(asked, _FRESH_S):
                await self._read()
            said = await self._say(shape)
            if not said and self._room.is_older(asked, _FRESH_NOTHING_S):
                await self._read()
                said = await self._say(shape)
        if said:
            return said
        await self._place_again()
        return unchecked(_requests(shape))

    async def _place_again(self) -> None:
        nodes, now = {gpu.node for gpu in self._room.gpus}, self._clock()
        if now - self._placed_again < _PLACE_AGAIN_S:
            return
        self._placed_again = now
        for value in ("true", None):  # any change counts, so nothing has to stay
            await self._label(min(nodes), value)

    async def _label(self, node: str, value: str | None) -> None:
        self._labelled = node  # also if the answer is lost
        try:
            await self._api.patch(f"{NODES}/{node}", {"metadata": {"labels": {PLACE_AGAIN: value}}})
        except ApiError as error:
            if value or error.status != HTTPStatus.NOT_FOUND:
                raise
        if not value:
            self._labelled = ""

    async def _read(self) -> None:
        began = self._clock()
        gpus = await self._gpus()
        self._room = _Room(gpus, began, self._clock() - began)

    async def _say(self, shape: str) -> str:
        room = self._room
        if shape not in room.said:
            room.said[shape] = await asyncio.to_thread(_lacking, room.gpus, _requests(shape))
        return room.said[shape]

    async def _gpus(self) -> Sequence[Gpu]:
        slices = [
            each
            async for page in self._api.pages(SLICES, fieldSelector=f"spec.driver={DRIVER}")
            for each in page["items"]
        ]
        taken: Taken = {}
        async for page in self._api.pages(CLAIMS):
            taken = taken_by(page["items"], taken)
        return await asyncio.to_thread(gpus_of, slices, taken)


def _lacking(gpus: Sequence[Gpu], requests: list[Request]) -> str:
    return lacking(gpus, requests) or lacking_together(gpus, requests)


def _requests(shape: str) -> list[Request]:
    return requests_of(ClaimShape.from_json(shape).template()["spec"]["spec"]["devices"])
