"""Makes the certificates and rotates them: looks at the cluster again and again, and takes the step that is due.

Looking rather than watching: there are three objects to look at, and what matters (which replica shows what) cannot be
watched. What this process remembers between two looks is only since when things have been as they are; a process that
has just begun knows nothing of that and waits in full, which is late, never wrong.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from prometheus_client import CollectorRegistry

from orion.operator.certificates import cert_manager
from orion.operator.certificates.api import Api, ApiError, get_or_none
from orion.operator.certificates.bundles import Configuration, path_of
from orion.operator.certificates.deciding import Phase, Seen, Step, begin, decide, phase
from orion.operator.certificates.issuing import Certificate, utc_now
from orion.operator.certificates.metrics import Metrics
from orion.operator.certificates.replicas import Replicas
from orion.operator.certificates.settings import CertificateSettings
from orion.operator.certificates.state import OURS, State, read_state, write_state

_MOST_STEPS = 8
""" Of one look. A start from nothing takes two; more than this only where others write at the same time. """
_LOG = logging.getLogger(__name__)


class NothingToRotate(Exception):
    """There is no Secret of these settings; the text is a sentence for the person who asked for a rotation."""


@dataclass
class _Since:
    """Since when something has been the same, by this process's own clock."""

    clock: Callable[[], float]
    _mark: object = None
    _at: float = 0.0

    def see(self, mark: object) -> timedelta:
        """Return how long it has been so; a mark that differs begins again."""
        if mark != self._mark:
            self._mark, self._at = mark, self.clock()
        return timedelta(seconds=self.clock() - self._at)

    def lost(self) -> None:
        """It is not so now."""
        self._mark = None


@dataclass(frozen=True)
class Clocks:
    """The time by which certificates are judged, and one that nobody sets (seconds)."""

    now: Callable[[], datetime] = utc_now
    monotonic: Callable[[], float] = time.monotonic


@dataclass(frozen=True)
class Look:
    """What a pass came to.

    Args:
        phase: of the rotation; None: others look after the certificates.
        why: what is done or waited for, as a sentence.
    """

    phase: Phase | None
    why: str


@dataclass
class _View:
    """The cluster as one pass reads it."""

    configurations: list[Configuration]
    secret: dict[str, Any] | None = None
    state: State = field(default_factory=State)


class Rotation:
    """The rotation of one webhook's certificates.

    Args:
        api: the API server.
        settings: whose, and how long things hold and wait.
        metrics: what Prometheus learns.
        without: tells which replicas do not show a leaf, as `Replicas.without` does; None: that.
        clocks: the time.
    """

    def __init__(
        self,
        api: Api,
        settings: CertificateSettings,
        metrics: Metrics | None = None,
        without: Callable[[Certificate], Awaitable[str]] | None = None,
        clocks: Clocks | None = None,
    ) -> None:
        self._api, self._settings, self._metrics = api, settings, metrics or Metrics()
        self._without = without or Replicas(api, settings).without
        self._clocks = clocks or Clocks()
        self._spread, self._shown = _Since(self._clocks.monotonic), _Since(self._clocks.monotonic)
        self._folder = f"/api/v1/namespaces/{settings.namespace}/secrets"
        self._said: dict[str, str] = {}

    async def run(self, may_write: Callable[[], bool] = lambda: True) -> None:
        """Look and act until cancelled.

        Args:
            may_write: whether this process is the one that writes. That two are, by mistake, does no harm.
        """
        while True:
            pause = self._settings.look_every
            if may_write():
                try:
                    if (await self.look()).phase not in (Phase.AT_REST, None):
                        pause = self._settings.look_every_while_moving
                    self._say("failure", "", logging.INFO)
                except ApiError as error:
                    self._metrics.failures.inc()
                    self._say("failure", f"certificates could not be looked after: {error}", logging.WARNING)
            else:
                pause = self._settings.look_every_while_moving  # asking costs nothing, and an install waits for us
                self._spread.lost()  # whatever happens now, this process does not see it
                self._shown.lost()
            await asyncio.sleep(pause.total_seconds())

    async def look(self) -> Look:
        """Make one pass: spread what is to be trusted, and take all steps that are due.

        Raises:
            ApiError: the API server cannot be asked, or forbids it.
        """
        step = Step(None, "others write at the same time")
        for _ in range(_MOST_STEPS):
            view = await self._read()
            others, sentence = await cert_manager.looks_after(self._api, self._settings, view.configurations)
            self._say("others", sentence, logging.WARNING)
            if others:
                return Look(None, sentence)
            try:
                step = await self._advance(view)
            except ApiError as error:
                if error.status != 409:
                    raise
                continue  # somebody else has written; look again
            if step.state is None:
                break
            _LOG.info("%s", step.why)
        now = self._clocks.now()
        self._metrics.report(view.state, now)
        self._say("why", step.why, logging.INFO)
        return Look(phase(view.state, now), step.why)

    async def rotate(self, why: str) -> str:
        """Begin a rotation, whatever the certificates' age; `look` does the rest. Return what was done.

        Raises:
            ApiError: the API server cannot be asked, forbids it, or somebody wrote at the same time.
            NothingToRotate: there is no Secret. A person meant another one, or certificates that are not ours: to make
                one here would be a key that the API server may come to trust, and no replica would show its leaf.
        """
        view = await self._read()
        others, sentence = await cert_manager.looks_after(self._api, self._settings, view.configurations)
        if others:
            return sentence
        if view.secret is None:
            raise NothingToRotate(
                f"there is no Secret {self._settings.namespace}/{self._settings.secret}, so nothing is rotated: name "
                "the release's own by --namespace, --secret, --service and --configuration; given certificates "
                "are renewed by whoever gives them"
            )
        now = self._clocks.now()
        if not view.state.serves(now):
            return (await self.look()).why
        step = begin(view.state, now, self._settings, why)
        if step.state is not None:
            await self._save(view, step.state)
        return step.why

    # -- One step ------------------------------------------------------------------------------------------------------

    async def _read(self) -> _View:
        # The configurations before the Secret: bundles.py says why.
        names = self._settings.configurations
        view = _View([Configuration(name, await get_or_none(self._api, path_of(name))) for name in names])
        view.secret = await get_or_none(self._api, f"{self._folder}/{self._settings.secret}")
        if view.secret is not None:
            view.state = read_state(view.secret.get("data") or {})
            self._say("problems", "; ".join(view.state.problems), logging.WARNING)
        return view

    async def _advance(self, view: _View) -> Step:
        """Do what is due in this view, and return the step that was taken.

        Raises:
            ApiError: 409 if somebody else has written since.
        """
        trusted = tuple(each for found in view.configurations for bundle in found.bundles for each in bundle)
        spread, missing = await self._spread_bundles(view)
        shown = None
        if view.state.retired and view.state.leaf is not None and view.state.coming is None:
            shown, missing = await self._ask_replicas(view.state.leaf, missing)
        now = self._clocks.now()
        step = decide(view.state, Seen(spread, shown, trusted, missing), now, self._settings)
        if step.state is not None:
            await self._save(view, step.state)
        return step

    async def _spread_bundles(self, view: _View) -> tuple[timedelta | None, str]:
        """Write the bundles that differ; return since when all have been as they are, or why they are not."""
        wanted = view.state.trusted
        if not wanted:  # there is nothing to trust yet, and what was trusted is still of use
            self._spread.lost()
            return None, "there is no authority"
        for index, found in enumerate(view.configurations):
            if found.body is not None and not found.holds(wanted):
                self._spread.lost()
                body = await self._api.put(found.path, found.with_bundle(wanted))
                self._metrics.spreads.inc()
                _LOG.info("%s now trusts %d authorities", found.name, len(wanted))
                view.configurations[index] = Configuration(found.name, body)
        absent = [found.name for found in view.configurations if found.body is None]
        if absent:
            self._spread.lost()
            self._say("absent", f"{', '.join(absent)} does not exist", logging.WARNING)
            return None, f"{', '.join(absent)} does not exist"
        self._say("absent", "", logging.INFO)
        authorities = frozenset(each.fingerprint for each in wanted)
        return self._spread.see((authorities, *(found.mark for found in view.configurations))), ""

    async def _ask_replicas(self, leaf: Certificate, missing: str) -> tuple[timedelta | None, str]:
        if why := await self._without(leaf):
            self._shown.lost()
            return None, why
        return self._shown.see(leaf.fingerprint), missing

    async def _save(self, view: _View, state: State) -> None:
        """Write the Secret, if it is still as it was read.

        Raises:
            ApiError: 409 if it is not.
        """
        data = write_state(state)
        if view.secret is None:
            metadata = {
                "name": self._settings.secret,
                "namespace": self._settings.namespace,
                "labels": {"app.kubernetes.io/name": "orion", "app.kubernetes.io/component": "webhook"},
            }
            body = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": metadata}
            await self._api.post(self._folder, body | {"data": data})
        else:
            others = {name: text for name, text in (view.secret.get("data") or {}).items() if name not in OURS}
            await self._api.put(f"{self._folder}/{self._settings.secret}", {**view.secret, "data": others | data})
        self._metrics.steps.inc()

    def _say(self, about: str, sentence: str, level: int) -> None:
        """Log a sentence once, and again when it has changed."""
        if sentence and self._said.get(about) != sentence:
            _LOG.log(level, "%s", sentence)
        self._said[about] = sentence


def part(
    settings: CertificateSettings,
) -> Callable[[Api, Callable[[], bool], CollectorRegistry], Coroutine[Any, Any, None]]:
    """Return the rotation as a part of a process that has a way to the API server, a Lease and metrics already."""

    def run(api: Api, may_write: Callable[[], bool], registry: CollectorRegistry) -> Coroutine[Any, Any, None]:
        return Rotation(api, settings, Metrics(registry)).run(may_write)

    return run
