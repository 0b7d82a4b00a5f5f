"""Finds out which node's agent calls: the API server says whose the token is, and on which node its pod runs.

The token is a projected one with an audience of its own, so the operator cannot use it at the API server. A token of a
pod names the pod's node (Kubernetes 1.32). Nothing that the caller says itself is believed.

A TokenReview is kept for a minute, a refusal for a few seconds, by a hash of the token. The number of reviews at one
time is bounded, so callers with invented tokens delay agents that come new, but neither the API server nor the
reconciler.
"""

import asyncio
import hashlib
import time
from collections import OrderedDict
from dataclasses import dataclass

from orion.api_server.requests import ApiError, ApiServer
from orion.errors import Exhausted, OrionError, Unavailable
from orion.node_pods import AUDIENCE

REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
NODE_NAME = "authentication.kubernetes.io/node-name"

_KEPT_S, _REFUSED_S = 60.0, 5.0
_KEPT_MAX = 8_192
_AT_ONCE, _WAITING_MAX = 8, 1_024


class NoToken(OrionError):
    """The call has no valid token."""

    grpc_code = "UNAUTHENTICATED"


class NotAnAgent(OrionError):
    """The token is valid, and it is not that of an agent on a node."""

    grpc_code = "PERMISSION_DENIED"


@dataclass(frozen=True)
class _Review:
    until: float
    node: str
    refused: type[OrionError] | None = None
    why: str = ""


class Callers:
    """Reviews tokens.

    Args:
        api: the API server.
        user: the user name of the agents' service account.
    """

    def __init__(self, api: ApiServer, user: str) -> None:
        self._api, self._user = api, user
        self._kept: OrderedDict[bytes, _Review] = OrderedDict()
        self._running: dict[bytes, asyncio.Task[_Review]] = {}
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def node(self, token: str) -> str:
        """Return the node of the agent that calls with this token.

        Raises:
            NoToken: there is no valid token.
            NotAnAgent: the token is not that of an agent, or names no node.
            Exhausted: too many tokens wait for their review.
            Unavailable: the API server does not answer.
        """
        if not token:
            raise NoToken("the call has no token; send the one that is mounted for the operator")
        digest = hashlib.sha256(token.encode()).digest()
        review = self._kept.get(digest)
        if review is None or review.until < time.monotonic():
            review = await self._reviewed(digest, token)
        if review.refused is not None:
            raise review.refused(review.why)
        return review.node

    async def _reviewed(self, digest: bytes, token: str) -> _Review:
        """Have a token reviewed, once for all calls with it."""
        task = self._running.get(digest)
        if task is None:
            if len(self._running) >= _WAITING_MAX:
                raise Exhausted("too many tokens wait for their review; call again later")
            task = self._running[digest] = asyncio.create_task(self._review(token))
            task.add_done_callback(lambda done: self._done(digest, done))
        return await asyncio.shield(task)

    def _done(self, digest: bytes, task: "asyncio.Task[_Review]") -> None:
        del self._running[digest]
        if task.cancelled() or task.exception() is not None:
            return
        self._kept[digest] = task.result()
        self._kept.move_to_end(digest)
        while len(self._kept) > _KEPT_MAX:
            self._kept.popitem(last=False)

    async def _review(self, token: str) -> _Review:
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [AUDIENCE]},
        }
        try:
            async with self._turns:
                status = (await self._api.post(REVIEWS, body)).get("status") or {}
        except ApiError as error:
            raise Unavailable(f"the token could not be reviewed; call again later: {error}") from error
        user = status.get("user") or {}
        name, node = user.get("username") or "", (user.get("extra") or {}).get(NODE_NAME) or []
        if not status.get("authenticated") or AUDIENCE not in (status.get("audiences") or ()):
            why = f"the API server does not accept the token for the audience {AUDIENCE}; mount a new one"
            return _refused(NoToken, why)
        if name != self._user:
            return _refused(NotAnAgent, f"the token is of {name}, and only {self._user} may ask for the pods of a node")
        if len(node) != 1 or not node[0]:
            why = "the token names no node; mount a token that is bound to the agent's pod (Kubernetes 1.32 and later)"
            return _refused(NotAnAgent, why)
        return _Review(time.monotonic() + _KEPT_S, node[0])


def _refused(kind: type[OrionError], why: str) -> _Review:
    return _Review(time.monotonic() + _REFUSED_S, "", kind, why)
