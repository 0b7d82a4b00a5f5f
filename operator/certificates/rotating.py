"""The control loop of the webhook's certificates: each pass reads the cluster and carries out the steps that are due.

An authority is a certificate authority (CA). The leaf is the webhook's server certificate, which an authority signs.
The loop polls and does not watch: it reads only three objects, and no object says which leaf a replica of the webhook
serves. Between two passes, the process remembers only for how long the caBundles and the replicas have been unchanged.
A process that has just started waits the full time again. This delays a step, but is safe.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from prometheus_client import CollectorRegistry

from orion.errors import NotFound
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
""" The most steps in one pass. A first installation takes two; more occur only if other processes write as well. """
_LOG = logging.getLogger(__name__)


@dataclass
class _Since:
    """Measures for how long an observed value has been unchanged, in monotonic seconds of `clock`."""

    clock: Callable[[], float]
    _value: object = None
    _at: float = 0.0

    def see(self, value: object) -> timedelta:
        """Return for how long `value` has been observed. A different value starts from zero."""
        if value != self._value:
            self._value, self._at = value, self.clock()
        return timedelta(seconds=self.clock() - self._at)

    def reset(self) -> None:
        """Forget the value: the time of the next value starts from zero."""
        self._value = None


@dataclass(frozen=True)
class Clocks:
    """The wall clock for validity periods, and a monotonic clock (seconds) for waits."""

    now: Callable[[], datetime] = utc_now
    monotonic: Callable[[], float] = time.monotonic


@dataclass(frozen=True)
class Look:
    """The result of one pass.

    Args:
        phase: the rotation's phase; None: cert-manager manages the certificates.
        why: a sentence that says what the pass did or what it waits for.
    """

    phase: Phase | None
    why: str


@dataclass
class _View:
    """The objects that one pass has read."""

    configurations: list[Configuration]
    secret: dict[str, Any] | None = None
    state: State = field(default_factory=State)


class Rotation:
    """The rotation of one webhook's certificates.

    Args:
        api: the API server.
        settings: names, validity periods and waits.
        metrics: updated after each pass; None: metrics that nothing exports.
        without: returns a sentence that names the replicas that do not serve a given leaf; None: `Replicas.without`.
        clocks: the clocks; None: the system's clocks.
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
        """Make passes until cancelled.

        Args:
            may_write: whether this process is the one that writes. Two writers at the same time do no harm.
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
                    self._say("failure", f"a pass over the certificates failed: {error}", logging.WARNING)
            else:
                pause = self._settings.look_every_while_moving  # a new installation waits for its certificates
                self._spread.reset()  # this process observes nothing while another one writes
                self._shown.reset()
            await asyncio.sleep(pause.total_seconds())

    async def look(self) -> Look:
        """Make one pass: write the authorities into the caBundles, and carry out all steps that are due.

        Raises:
            ApiError: the API server does not answer, or forbids a request.
        """
        step = Step(None, "other processes write at the same time")
        for _ in range(_MOST_STEPS):
            view = await self._read()
            others, sentence = await cert_manager.manages_certificates(self._api, self._settings, view.configurations)
            self._say("others", sentence, logging.WARNING)
            if others:
                return Look(None, sentence)
            try:
                step = await self._advance(view)
            except ApiError as error:
                if error.status != 409:
                    raise
                continue  # another process has written: read again
            if step.state is None:
                break
            _LOG.info("%s", step.why)
        now = self._clocks.now()
        self._metrics.report(view.state, now)
        self._say("why", step.why, logging.INFO)
        return Look(phase(view.state, now), step.why)

    async def rotate(self, why: str) -> str:
        """Begin a rotation, whatever the certificates' age. Later passes (`look`) complete it.

        Returns:
            A sentence that says what was done.

        Raises:
            ApiError: the API server does not answer or forbids a request, or another process wrote at the same time.
            NotFound: the Secret does not exist. The user meant another Secret, or Orion does not manage the
                certificates. If this function made the Secret, the API server could trust a new authority while every
                replica still serves a leaf of another authority.
        """
        view = await self._read()
        others, sentence = await cert_manager.manages_certificates(self._api, self._settings, view.configurations)
        if others:
            return sentence
        if view.secret is None:
            raise NotFound(
                f"there is no Secret {self._settings.namespace}/{self._settings.secret}, so nothing is rotated: name "
                "the release's objects with --namespace, --secret, --service and --configuration; if you gave the "
                "chart your own certificates, renew them yourself"
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
        # The configurations must be read before the Secret (see bundles.py).
        names = self._settings.configurations
        view = _View([Configuration(name, await get_or_none(self._api, path_of(name))) for name in names])
        view.secret = await get_or_none(self._api, f"{self._folder}/{self._settings.secret}")
        if view.secret is not None:
            view.state = read_state(view.secret.get("data") or {})
            self._say("problems", "; ".join(view.state.problems), logging.WARNING)
        return view

    async def _advance(self, view: _View) -> Step:
        """Carry out what is due in this view, and return the step.

        Raises:
            ApiError: 409 if another process has written since the view was read.
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
        """Write the caBundles that differ.

        Returns:
            For how long every caBundle has held the wanted authorities, or None if one does not hold them; and a
            sentence that says why one does not.
        """
        wanted = view.state.trusted
        if not wanted:  # do not empty the caBundles: replicas may still serve a leaf of an authority in them
            self._spread.reset()
            return None, "there is no authority"
        for index, found in enumerate(view.configurations):
            if found.body is not None and not found.holds(wanted):
                self._spread.reset()
                body = await self._api.put(found.path, found.with_bundle(wanted))
                self._metrics.spreads.inc()
                _LOG.info("%s now trusts %d authorities", found.name, len(wanted))
                view.configurations[index] = Configuration(found.name, body)
        absent = [found.name for found in view.configurations if found.body is None]
        if absent:
            self._spread.reset()
            self._say("absent", f"{', '.join(absent)} does not exist", logging.WARNING)
            return None, f"{', '.join(absent)} does not exist"
        self._say("absent", "", logging.INFO)
        authorities = frozenset(each.fingerprint for each in wanted)
        return self._spread.see((authorities, *(found.version for found in view.configurations))), ""

    async def _ask_replicas(self, leaf: Certificate, missing: str) -> tuple[timedelta | None, str]:
        if why := await self._without(leaf):
            self._shown.reset()
            return None, why
        return self._shown.see(leaf.fingerprint), missing

    async def _save(self, view: _View, state: State) -> None:
        """Write the Secret with the resourceVersion that was read.

        Raises:
            ApiError: 409 if the Secret has changed since it was read.
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
        """Log a sentence if it differs from the last one about the same subject."""
        if sentence and self._said.get(about) != sentence:
            _LOG.log(level, "%s", sentence)
        self._said[about] = sentence


def part(
    settings: CertificateSettings,
) -> Callable[[Api, Callable[[], bool], CollectorRegistry], Coroutine[Any, Any, None]]:
    """Return the rotation as a part of a process that already has an API client, a Lease and a metrics registry."""

    def run(api: Api, may_write: Callable[[], bool], registry: CollectorRegistry) -> Coroutine[Any, Any, None]:
        return Rotation(api, settings, Metrics(registry)).run(may_write)

    return run
