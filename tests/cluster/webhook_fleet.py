"""Two real webhooks, with stand-ins for the parts of a cluster that are missing here.

There is no kubelet, so `StandInKubelet` writes the Secret into each webhook's folder, after a delay. There is no
kube-proxy, so `StandInService` passes connections to the webhooks that are ready. All else is real: the webhooks are
processes, the API server calls them, and `orion certificates run` makes and rotates the certificates.
"""

import asyncio
import base64
import contextlib
import itertools
import os
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kubernetes import client

from tests.cluster.forwarder import Forwarder, Target
from tests.cluster.running_webhook import RunningWebhook


class StandInService(Forwarder):
    """A port that passes each new connection to the next ready webhook, as kube-proxy does for a Service."""

    def __init__(self) -> None:
        self.ready: list[int] = []
        self._turn = itertools.count()
        super().__init__(self._choose_webhook)

    def _choose_webhook(self) -> Target | None:
        ready = self.ready
        return ("127.0.0.1", ready[next(self._turn) % len(ready)]) if ready else None


@dataclass
class Background:
    """Work that a thread repeats until the end of a block; if the work fails, the block fails."""

    work: Callable[[], None]
    every: float
    _end: threading.Event = field(default_factory=threading.Event)
    _failure: list[BaseException] = field(default_factory=list)

    def __enter__(self) -> "Background":
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._end.set()
        self._thread.join(30)
        if self._failure and kind is None:
            raise self._failure[0]

    def _run(self) -> None:
        try:
            while not self._end.wait(self.every):
                self.work()
        except BaseException as failure:
            self._failure.append(failure)


class StandInKubelet:
    """Writes a Secret's tls.crt and tls.key into folders as kubelets do: after a delay, and by replacing one link."""

    def __init__(self, api: client.ApiClient, namespace: str, secret: str, volumes: dict[Path, float]) -> None:
        self._core, self._where, self._volumes = client.CoreV1Api(api), (secret, namespace), volumes
        self._versions: list[tuple[float, str, dict[str, str]]] = []
        self._brought: dict[Path, str] = {}

    def work(self) -> None:
        """Read the Secret, and write every version that is due."""
        try:
            secret: Any = self._core.read_namespaced_secret(*self._where)
        except client.ApiException as error:
            if error.status != 404:
                raise
            return
        version = secret.metadata.resource_version
        if "tls.crt" not in (secret.data or {}):
            return  # a kubelet keeps what it has delivered if a key is missing
        if not self._versions or self._versions[-1][1] != version:
            self._versions.append((time.monotonic(), version, dict(secret.data)))
        for volume, late in self._volumes.items():
            due = [each for each in self._versions if each[0] <= time.monotonic() - late]
            if due and self._brought.get(volume) != due[-1][1]:
                _project(volume, due[-1][1], due[-1][2])
                self._brought[volume] = due[-1][1]


def _project(volume: Path, version: str, data: dict[str, str]) -> None:
    folder = volume / f"..{version}"
    folder.mkdir(parents=True)
    for name in ("tls.crt", "tls.key"):
        (folder / name).write_bytes(base64.b64decode(data[name]))
        if not (volume / name).is_symlink():
            (volume / name).symlink_to(Path("..data") / name)
    (volume / "..next").symlink_to(folder.name)
    os.replace(volume / "..next", volume / "..data")


class NewApiServer:
    """A stand-in for an API server that has just started: it trusts the configuration's caBundle, and connects."""

    def __init__(self, api: client.ApiClient, configuration: str, port: int) -> None:
        self._admission, self._name, self._port = client.AdmissionregistrationV1Api(api), configuration, port
        self.handshakes = 0
        self.refused: list[str] = []

    def work(self) -> None:
        """Read the caBundle, and make a TLS handshake with it."""
        found: Any = self._admission.read_mutating_webhook_configuration(self._name)
        bundle = base64.b64decode(found.webhooks[0].client_config.ca_bundle).decode()
        asyncio.run(self._handshake(ssl.create_default_context(cadata=bundle)))

    async def _handshake(self, context: ssl.SSLContext) -> None:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self._port, ssl=context)
            writer.transport.abort()
            self.handshakes += 1
        except ssl.SSLError as error:
            self.refused.append(str(error))


MOST_UNANSWERED = 100


class Creations:
    """Creates pods at a steady rate, each in its own thread: no creation waits for another.

    On a machine that is too slow for the rate, no further one begins while `MOST_UNANSWERED` have no answer.

    The creations are dry runs, which pass admission like any creation. A thousand stored pods that no node takes would
    keep the scheduler busy, and later the deletion of their namespace.
    """

    def __init__(self, api: client.ApiClient, namespace: str, rate: float) -> None:
        self._core, self._namespace, self._period = client.CoreV1Api(api), namespace, 1 / rate
        self._end = threading.Event()
        self._threads: list[threading.Thread] = []
        self.made, self.began, self.seconds = 0, 0.0, 0.0
        self.refused: list[str] = []
        self.unpatched: list[str] = []

    def __enter__(self) -> "Creations":
        self._clock = threading.Thread(target=self._run, daemon=True)
        self.began = time.monotonic()
        self._clock.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._clock.join(30)
        for thread in self._threads:
            thread.join(60)
        self.seconds = time.monotonic() - self.began

    def _run(self) -> None:
        for number in itertools.count():
            if self._end.wait(max(0.0, self.began + number * self._period - time.monotonic())):
                return
            self._threads = [each for each in self._threads if each.is_alive()]
            if len(self._threads) >= MOST_UNANSWERED:
                continue
            thread = threading.Thread(target=self._make, args=(f"pod-{number}",), daemon=True)
            thread.start()
            self._threads.append(thread)

    def _make(self, name: str) -> None:
        container = {"name": "main", "image": "localhost/none:1", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
        metadata = {"name": name, "annotations": {"orion/priority": "be"}}
        try:
            made: Any = self._core.create_namespaced_pod(
                self._namespace, {"metadata": metadata, "spec": {"containers": [container]}}, dry_run="All"
            )
        except Exception as error:
            self.refused.append(f"{name}: {getattr(error, 'body', error)}")
            return
        self.made += 1
        has_slot = "orion.gpu/be" in made.spec.containers[0].resources.limits
        if not has_slot or "orion.gpu/share" not in made.metadata.annotations:
            self.unpatched.append(name)


@dataclass
class Fleet:
    """The webhooks, behind the stand-in for their Service.

    Args:
        service: the stand-in.
        webhooks: the processes.
        leaving: processes that were replaced; each ends once the API server has closed its connections.
        refused: what these processes had refused when they got SIGTERM.
    """

    service: StandInService
    webhooks: list[RunningWebhook]
    leaving: list[subprocess.Popen[bytes]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def refusals(self) -> list[str]:
        """Return the metrics that say why the webhooks closed connections, of the replaced processes too."""
        return [*self.refused, *(line for each in self.webhooks for line in _refusals(each))]

    def admit(self) -> None:
        """Let the Service use all webhooks that are ready."""
        self.service.ready = [each.port for each in self.webhooks]

    def roll_out(self) -> None:
        """Restart the webhooks one after another, as a Deployment with maxUnavailable 1 does."""
        for webhook in self.webhooks:
            others = [each.port for each in self.webhooks if each is not webhook]
            process = webhook.process
            assert process is not None
            self.refused += _refusals(webhook)
            process.terminate()  # the webhook still answers for --leave-seconds, until the Service no longer uses it
            self.service.ready = others
            self.leaving.append(process)
            webhook.start_again()
            self.admit()


def _refusals(webhook: RunningWebhook) -> list[str]:
    return [line for line in webhook.read("metrics").splitlines() if line.startswith("orion_webhook_refused_total")]


@contextlib.contextmanager
def fleet(webhooks: list[RunningWebhook]) -> Iterator[Fleet]:
    """Start webhooks behind the stand-in for a Service."""
    with StandInService() as service:
        made = Fleet(service, webhooks)
        try:
            for webhook in webhooks:
                webhook.start()
            made.admit()
            yield made
        finally:
            for process in (*made.leaving, *(each.process for each in webhooks)):
                if process is not None:
                    process.kill()  # the API server still holds connections, so that SIGTERM would take 90 s
                    process.wait(30)
