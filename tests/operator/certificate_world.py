"""A simulated cluster in memory for tests of the certificate rotation, with the delays of a real cluster.

API servers read a changed configuration late, and kubelets deliver a changed Secret late. Rotators can be stopped
between any two requests, before or after a request takes effect. The test advances the simulated time.
"""

import base64
import copy
import types
from collections.abc import Coroutine, Generator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from orion.errors import NotFound
from orion.operator.certificates.api import ApiError
from orion.operator.certificates.bundles import FOLDER, Configuration
from orion.operator.certificates.issuing import Certificate
from orion.operator.certificates.rotating import Clocks, Look, Rotation
from orion.operator.certificates.settings import CertificateSettings
from orion.operator.certificates.state import State, read_state

EPOCH = datetime(2030, 1, 1, tzinfo=UTC)
# In seconds: the longest time until an API server reads a write, the longest time until a kubelet delivers a Secret,
# and the greatest age of the Secret that a starting replica gets.
LAG, DELIVERY, STALE = 8, 40, 8
SETTINGS = CertificateSettings(
    leaf_validity=timedelta(seconds=300),
    leaf_renew_before=timedelta(seconds=100),
    authority_validity=timedelta(seconds=1200),
    authority_renew_before=timedelta(seconds=400),
    spread=timedelta(seconds=10),
    drop_retired_after=timedelta(seconds=60),
)
HOOK = f"{FOLDER}/{SETTINGS.configuration}"
Bundles = tuple[tuple[Certificate, ...], ...]
SECRET = f"/api/v1/namespaces/{SETTINGS.namespace}/secrets/{SETTINGS.secret}"


@types.coroutine
def turn() -> Generator[None, None, None]:
    """Give control back to the test, which may run another rotator."""
    yield


@dataclass
class World:
    """The simulated cluster.

    Args:
        now: seconds since EPOCH.
        objects: the stored objects, by path.
        history: for each path, all versions of the object with the times at which they were written.
        views: for each API server, the index of the version of the webhook configuration that it has read.
        replicas: for each replica, the index of the version of the Secret that it serves.
    """

    now: int = 0
    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    history: dict[str, list[tuple[int, dict[str, Any]]]] = field(default_factory=dict)
    views: list[int] = field(default_factory=lambda: [0, 0])
    replicas: list[int] = field(default_factory=lambda: [-1, -1, -1])
    version: int = 0
    _leaves: dict[int, Certificate | None] = field(default_factory=dict)
    _seen: dict[int, Bundles] = field(default_factory=dict)
    _verified: dict[tuple[bytes, bytes], bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        webhooks = [{"name": f"{number}.orion.gpu", "clientConfig": {"url": "https://x"}} for number in range(2)]
        self.put(HOOK, {"metadata": {"name": SETTINGS.configuration}, "webhooks": webhooks})

    # -- Objects -------------------------------------------------------------------------------------------------------

    def put(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        self.version += 1
        stored = copy.deepcopy(dict(body))
        stored["metadata"] = {"uid": path, **stored.get("metadata", {}), "resourceVersion": str(self.version)}
        self.objects[path] = stored
        self.history.setdefault(path, []).append((self.now, stored))
        return copy.deepcopy(stored)

    def delete(self, path: str) -> None:
        del self.objects[path]

    @property
    def state(self) -> State:
        return read_state(self.objects.get(SECRET, {}).get("data", {}))

    def bundles(self) -> list[frozenset[str]]:
        found = Configuration(SETTINGS.configuration, self.objects.get(HOOK)).bundles
        return [frozenset(each.fingerprint for each in bundle) for bundle in found]

    # -- Delays --------------------------------------------------------------------------------------------------------

    def observe(self, server: int) -> None:
        """Let an API server read the latest version of the webhook configuration."""
        self.views[server] = len(self.history[HOOK]) - 1

    def deliver(self, replica: int) -> None:
        """Let a kubelet deliver the latest Secret, and its replica load it."""
        self._load(replica, len(self.history[SECRET]) - 1)

    def replace(self, replica: int) -> None:
        """Replace a replica by a new one, which gets the oldest possible version of the Secret."""
        self._load(replica, self._oldest_that_may_be_seen(SECRET, STALE))

    def advance(self, seconds: int) -> None:
        """Advance the time, and deliver every version whose longest delay has passed."""
        for _ in range(seconds):
            self.now += 1
            self.views = [max(seen, self._oldest_that_may_be_seen(HOOK, LAG)) for seen in self.views]
            for replica, seen in enumerate(self.replicas):
                self._load(replica, max(seen, self._oldest_that_may_be_seen(SECRET, DELIVERY)))

    def _load(self, replica: int, version: int) -> None:
        """Let a replica load a version of the Secret. It goes on with its leaf if the version has none."""
        if self.leaf(version) is not None:
            self.replicas[replica] = version

    def _oldest_that_may_be_seen(self, path: str, lag: int) -> int:
        """Return the index of the latest version that is at least `lag` seconds old; 0: none is."""
        versions = self.history.get(path, ())
        return next((n for n in range(len(versions) - 1, -1, -1) if versions[n][0] <= self.now - lag), 0)

    def leaf(self, version: int) -> Certificate | None:
        """Return the leaf in a version of the Secret."""
        if version not in self._leaves:
            self._leaves[version] = read_state(self.history[SECRET][version][1]["data"]).leaf
        return self._leaves[version]

    def _bundles(self, version: int) -> Bundles:
        if version not in self._seen:
            self._seen[version] = Configuration(SETTINGS.configuration, self.history[HOOK][version][1]).bundles
        return self._seen[version]

    def _signed(self, authority: Certificate, leaf: Certificate) -> bool:
        """Return whether the authority signed the leaf; each pair is verified once."""
        pair = authority.pem, leaf.pem
        if pair not in self._verified:
            self._verified[pair] = authority.signed(leaf)
        return self._verified[pair]

    # -- Invariant -----------------------------------------------------------------------------------------------------

    def refused(self) -> list[str]:
        """Return a sentence for each API server that does not accept the certificate of a replica."""
        now, found = EPOCH + timedelta(seconds=self.now), []
        for server, view in enumerate(self.views):
            for replica, version in enumerate(self.replicas):
                leaf = self.leaf(version)
                assert leaf is not None
                for bundle in self._bundles(view):
                    if not leaf.holds(now) or not any(each.holds(now) and self._signed(each, leaf) for each in bundle):
                        found.append(f"at {self.now}: API server {server} refuses replica {replica}")
        return found


@dataclass
class Rotator:
    """A process that rotates the certificates of a world. Each `step` makes part of one request."""

    world: World
    settings: CertificateSettings = SETTINGS
    work: Coroutine[Any, Any, Any] | None = None
    last: Look | None = None

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Restart the process without its memory. A request that has not taken effect is lost."""
        if self.work is not None:
            self.work.close()
        self.work = None
        self.rotation = Rotation(self, self.settings, clocks=self._clocks())

    def step(self) -> bool:
        """Run until the next `turn`; return whether this completed a pass."""
        if self.work is None:
            self.work = self.rotation.look()
        try:
            self.work.send(None)
        except StopIteration as end:
            self.work = None
            if isinstance(end.value, Look):
                self.last = end.value
                return True
        except ApiError as error:
            if error.status not in (404, 409):
                raise
            self.work = None
        except NotFound:  # the test has deleted the Secret; the next pass creates it
            self.work = None
        return False

    def look(self) -> Look:
        """Run one whole pass."""
        while not self.step():
            pass
        assert self.last is not None
        return self.last

    def rotate(self) -> None:
        if self.work is not None:
            self.work.close()
        self.work = self.rotation.rotate("a test asked for it")

    def _clocks(self) -> Clocks:
        return Clocks(lambda: EPOCH + timedelta(seconds=self.world.now), lambda: float(self.world.now))

    # -- The interface of an API client --------------------------------------------------------------------------------

    async def get(self, path: str, accept: str = "", **query: str) -> dict[str, Any]:
        await turn()
        found = self.world.objects.get(path)
        await turn()
        if found is None:
            raise ApiError(404, f"{path} not found")
        return copy.deepcopy(found)

    async def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        full = f"{path}/{body['metadata']['name']}"
        await turn()
        if full in self.world.objects:
            raise ApiError(409, "already exists")
        done = self.world.put(full, body)
        await turn()
        return done

    async def put(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        await turn()
        if path not in self.world.objects:
            raise ApiError(404, "not found")
        if self.world.objects[path]["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"]:
            raise ApiError(409, "the object has been modified")
        done = self.world.put(path, body)
        await turn()
        return done


def installed() -> tuple[World, Rotator]:
    """Return a world after the first pass, in which all API servers and replicas have read the latest versions."""
    world = World()
    rotator = Rotator(world)
    rotator.look()
    for server in range(len(world.views)):
        world.observe(server)
    for replica in range(len(world.replicas)):
        world.deliver(replica)
    return world, rotator


def encoded(pem: bytes) -> str:
    return base64.b64encode(pem).decode()
