"""The control loop of the webhook's certificates: each pass reads the cluster and carries out the steps that are due.

An authority is a certificate authority (CA). The leaf is the webhook's server certificate, which an authority signs.
A pass reads two objects, so the loop polls and does not watch. Between two passes, the process remembers only for how
long the caBundles have been unchanged. A process that has just started waits the full time again. This delays a step,
but is safe.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from prometheus_client import CollectorRegistry

from orion.errors import NotFound
from orion.operator.certificates.api import Api, ApiError, get_or_none
from orion.operator.certificates.bundles import FOLDER, Configuration
from orion.operator.certificates.deciding import Step, change_authority, check_authority, check_leaf
from orion.operator.certificates.issuing import utc_now
from orion.operator.certificates.metrics import Metrics
from orion.operator.certificates.settings import CertificateSettings
from orion.operator.certificates.state import RETIRED, State, read_state, write_state

_MOST_STEPS = 8
""" The most steps in one pass. A first installation takes two; more occur only if other processes write as well. """
_STAND_BY_S = 1.0
""" How often a process that may not write checks whether it may. A new installation waits for its certificates. """
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Clocks:
    """The wall clock for validity periods, and a monotonic clock (seconds) for waits."""

    now: Callable[[], datetime] = utc_now
    monotonic: Callable[[], float] = time.monotonic


@dataclass(frozen=True)
class Look:
    """The result of one pass.

    Args:
        state: the certificates; None: cert-manager manages them.
        why: a sentence that says what the pass did or what it waits for.
    """

    state: State | None
    why: str


@dataclass
class _View:
    """The objects that one pass has read."""

    configuration: Configuration
    secret: dict[str, Any] | None
    state: State = field(default_factory=State)


class Rotation:
    """Keeps one webhook's certificates valid.

    Args:
        api: the API server.
        settings: names, validity periods and waits.
        metrics: updated after each pass; None: metrics that nothing exports.
        clocks: the clocks; None: the system's clocks.
    """

    def __init__(
        self,
        api: Api,
        settings: CertificateSettings,
        metrics: Metrics | None = None,
        clocks: Clocks | None = None,
    ) -> None:
        self._api, self._settings, self._metrics = api, settings, metrics or Metrics()
        self._clocks = clocks or Clocks()
        self._spread: tuple[object, float] | None = None  # what the caBundles hold, and since when
        self._folder = f"/api/v1/namespaces/{settings.namespace}/secrets"
        self._said: dict[str, str] = {}

    async def run(self, may_write: Callable[[], bool] = lambda: True) -> None:
        """Make passes until cancelled.

        Args:
            may_write: whether this process is the one that writes. Two writers at the same time do no harm.
        """
        while True:
            pause = self._settings.look_every.total_seconds()
            if may_write():
                try:
                    await self.look()
                    self._say("failure", "", logging.INFO)
                except ApiError as error:
                    self._metrics.failures.inc()
                    self._say("failure", f"a pass over the certificates failed: {error}", logging.WARNING)
            else:
                pause = _STAND_BY_S
                self._spread = None  # this process observes nothing while another one writes
                self._metrics.forget()
            await asyncio.sleep(pause)

    async def look(self) -> Look:
        """Make one pass: carry out all steps that are due, and write the authorities into the caBundles.

        Raises:
            ApiError: the API server does not answer, or forbids a request.
        """
        step = Step(None, "other processes write at the same time")
        for _ in range(_MOST_STEPS):
            view = await self._read()
            others = view.configuration.others
            self._say("others", others, logging.WARNING)
            if others:
                self._metrics.forget()
                return Look(None, others)
            try:
                step = await self._advance(view)
            except ApiError as error:
                if error.status != 409:
                    raise
                continue  # another process has written: read again
            if step.state is None:
                break
            _LOG.info("%s", step.why)
        self._metrics.report(view.state)
        self._say("why", step.why, logging.INFO)
        return Look(view.state, step.why)

    async def rotate(self, why: str) -> str:
        """Make a new authority, whatever the age of the current one. Later passes (`look`) sign and spread.

        Returns:
            A sentence that says what was done.

        Raises:
            ApiError: the API server does not answer or forbids a request, or another process wrote at the same time.
            NotFound: the Secret does not exist. The user meant another Secret, or Orion does not manage the
                certificates. If this function made the Secret, the API server could trust a new authority while every
                replica still serves a leaf of another authority.
        """
        view = await self._read()
        if view.configuration.others:
            return view.configuration.others
        if view.secret is None:
            raise NotFound(
                f"there is no Secret {self._settings.namespace}/{self._settings.secret}, so nothing is rotated: name "
                "the release's objects with --namespace, --secret and --configuration; if you gave the chart your own "
                "certificates, renew them yourself"
            )
        now, state = self._clocks.now(), view.state
        if not state.serves(now):
            return (await self.look()).why
        if not state.is_signed:
            return "a new authority was made before, and has not signed a leaf yet"
        step = change_authority(state, now, self._settings, why)
        if step.state is not None:
            await self._save(view, step.state)
        return step.why

    # -- One step ------------------------------------------------------------------------------------------------------

    async def _read(self) -> _View:
        # The configuration must be read before the Secret (see bundles.py).
        name = self._settings.configuration
        configuration = Configuration(name, await get_or_none(self._api, f"{FOLDER}/{name}"))
        view = _View(configuration, await get_or_none(self._api, f"{self._folder}/{self._settings.secret}"))
        if view.secret is not None:
            view.state = read_state(view.secret.get("data") or {})
            self._say("problems", "; ".join(view.state.problems), logging.WARNING)
        return view

    async def _advance(self, view: _View) -> Step:
        """Carry out what is due in this view, and return the step.

        The caBundle is written between the two decisions: a leaf is signed only by an authority that it holds.

        Raises:
            ApiError: 409 if another process has written since the view was read.
        """
        now = self._clocks.now()
        trusted = tuple(each for bundle in view.configuration.bundles for each in bundle)
        step = check_authority(view.state, trusted, now, self._settings)
        if step.state is None:
            step = check_leaf(view.state, await self._write_bundles(view), now, self._settings)
        if step.state is not None:
            await self._save(view, step.state)
        return step

    async def _write_bundles(self, view: _View) -> timedelta | None:
        """Write the caBundles if one differs.

        Returns:
            For how long every caBundle has held the state's authorities; None: there is no webhook configuration.
        """
        found, wanted = view.configuration, view.state.trusted
        if found.body is None:
            self._say("absent", f"there is no MutatingWebhookConfiguration {found.name}", logging.WARNING)
            self._spread = None
            return None
        self._say("absent", "", logging.INFO)
        if not found.holds(wanted):
            found = Configuration(found.name, await self._api.put(f"{FOLDER}/{found.name}", found.with_bundle(wanted)))
            self._metrics.spreads.inc()
            _LOG.info("%s now trusts %d authorities", found.name, len(wanted))
        now, held = self._clocks.monotonic(), (frozenset(each.fingerprint for each in wanted), found.version)
        if self._spread is None or self._spread[0] != held:
            self._spread = held, now
        return timedelta(seconds=now - self._spread[1])

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
            # Not of type kubernetes.io/tls, which must always have a leaf: a new authority waits before it signs one.
            body = {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": metadata}
            await self._api.post(self._folder, body | {"data": data})
        else:
            others = {name: text for name, text in (view.secret.get("data") or {}).items() if name != RETIRED}
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
