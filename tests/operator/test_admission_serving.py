"""The webhook's server: TLS, reviews, errors, changes of the certificate, and the shutdown."""

import asyncio
import base64
import contextlib
import errno
import json
import os
import signal
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cryptography import x509

from orion.api_server.access import Access
from orion.errors import Unreadable
from orion.operator.webhook.defaults import Defaults
from orion.operator.webhook.reviews import TEXT_MAX, shortened
from orion.operator.webhook.serving import Listening, Webhook
from orion.operator.webhook.tls import LiveCertificate
from testbed.authority import Authority
from tests.api_server.test_api_server_watching import share
from tests.operator.scripted_api import ScriptedApi
from tests.waiting import DEADLINE, eventually_async


class Served:
    """A running webhook and a client of it."""

    def __init__(self, webhook: Webhook, folder: Path, authority: Authority) -> None:
        self.webhook, self.folder, self.authority = webhook, folder, authority
        self.session = aiohttp.ClientSession(connector=self.connector())

    def connector(self) -> aiohttp.TCPConnector:
        return aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=str(self.authority.certificate_path)))

    def issue(self) -> None:
        self.authority.server("webhook", ["127.0.0.1"]).write(self.folder, "tls")

    async def post(self, body: bytes) -> tuple[int, str]:
        async with self.session.post(f"https://127.0.0.1:{self.webhook.port}/admit", data=body) as response:
            return response.status, await response.text()

    async def review(self, pod: dict[str, Any] | None, **changes: Any) -> dict[str, Any]:
        status, text = await self.post(question(pod, **changes))
        assert status == 200, text
        found: dict[str, Any] = json.loads(text)["response"]
        return found

    async def get(self, path: str) -> tuple[int, str]:
        exposition = self.webhook._exposition
        plain = exposition and f"http://127.0.0.1:{exposition.port}"
        async with self.session.get(f"{plain or f'https://127.0.0.1:{self.webhook.port}'}/{path}") as response:
            return response.status, await response.text()


def question(pod: dict[str, Any] | None, **changes: Any) -> bytes:
    request = {
        "uid": "u-1", "operation": "CREATE", "namespace": "team", "object": pod,
        "resource": {"group": "", "version": "v1", "resource": "pods"}, **changes,
    }  # fmt: skip
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


def pod(priority: str = "hp", **annotations: str) -> dict[str, Any]:
    marks = {"orion/priority": priority} | {f"orion/{name}": value for name, value in annotations.items()}
    resources = {"limits": {"nvidia.com/gpu": "1"}}
    return {"metadata": {"annotations": marks}, "spec": {"containers": [{"name": "c", "resources": resources}]}}


@pytest.fixture
async def served(script: ScriptedApi, tmp_path: Path) -> AsyncIterator[Served]:
    authority = Authority(tmp_path / "authority")
    authority.server("webhook", ["127.0.0.1"]).write(tmp_path, "tls")
    listening = Listening("127.0.0.1", 0, tmp_path / "tls.crt", tmp_path / "tls.key", "127.0.0.1:0", leave_s=2.0)
    webhook = Webhook(Access(script.url, None), Defaults(), listening)
    started = asyncio.Event()
    running = asyncio.create_task(webhook.run(lambda _: started.set()), name="webhook")
    await asyncio.wait_for(started.wait(), DEADLINE)
    found = Served(webhook, tmp_path, authority)
    await eventually_async(lambda: webhook.admission.ready)
    await eventually_async(lambda: len(script.watches) == 2)  # else a watch could get what `refusals` has for a review
    yield found
    await found.session.close()
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


async def test_a_review_is_answered_with_a_patch(served: Served) -> None:
    response = await served.review(pod())
    assert (response["uid"], response["allowed"], response["patchType"]) == ("u-1", True, "JSONPatch")
    paths = [each["path"] for each in json.loads(base64.b64decode(response["patch"]))]
    assert "/metadata/annotations/orion.gpu~1share" in paths


async def test_a_rejection_contains_the_sentence(served: Served) -> None:
    response = await served.review(pod("gold"))
    assert response["allowed"] is False
    assert response["status"]["message"] == "annotation orion/priority must be hp or be, not 'gold'"
    assert response["status"]["code"] == 403


@pytest.mark.parametrize(
    "changes",
    [
        {"resource": {"version": "v1", "resource": "services"}},
        {"operation": "UPDATE"},
        {"subResource": "status"},
        {"operation": "DELETE", "object": None},
    ],
)
async def test_requests_that_do_not_concern_orion_are_allowed(served: Served, changes: dict[str, Any]) -> None:
    assert (await served.review(pod("gold"), **changes)) == {"uid": "u-1", "allowed": True}


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{}", b"[]", b"\xff", question(pod())[:-1], question(pod(), uid=""),
        question(pod()).replace(b"k8s.io/v1", b"k8s.io/v1beta1"),
    ],
)  # fmt: skip
async def test_a_body_that_is_not_a_review_is_a_bad_request(served: Served, body: bytes) -> None:
    status, text = await served.post(body)
    assert status == 400
    assert text.startswith("not an AdmissionReview")


async def test_an_internal_error_is_an_http_error_and_never_a_denial(served: Served) -> None:
    status, text = await served.post(question({"metadata": {}, "spec": {"containers": "none"}}))
    assert status == 500
    assert "an error of the webhook" in text


async def test_a_share_that_the_watch_has_not_reported_yet_is_found(script: ScriptedApi, served: Served) -> None:
    missing = await served.review(pod("be", share="late"))
    assert "late, which does not exist" in missing["status"]["message"]
    script.put(share("late"), silently=True)
    assert (await served.review(pod("be", share="late")))["allowed"] is True
    assert "orion_webhook_second_looks_total 2.0" in (await served.get("metrics"))[1]


@pytest.mark.parametrize("refusal", [(403, {}), (429, {"Retry-After": "30"})], ids=["forbidden", "retry too late"])
async def test_a_live_read_that_fails_is_an_http_error(
    script: ScriptedApi, served: Served, refusal: tuple[int, dict[str, str]]
) -> None:
    script.refusals.append(refusal)
    status, text = await served.post(question(pod("be", share="late")))
    assert (status, text.partition(":")[0]) == (500, "a request to the API server failed")


async def test_a_live_read_is_repeated_after_a_503(script: ScriptedApi, served: Served) -> None:
    script.refusals.append((503, {}))
    assert "late, which does not exist" in (await served.review(pod("be", share="late")))["status"]["message"]


async def test_the_response_contains_the_warnings(served: Served) -> None:
    given = pod()
    given["spec"]["containers"][0]["envFrom"] = [{"configMapRef": {"name": "c"}}]
    assert "has no effect" in (await served.review(given))["warnings"][0]


async def test_health_and_metrics(served: Served) -> None:
    assert await served.get("healthz") == (200, "ok\n")
    assert await served.get("readyz") == (200, "ok\n")
    await served.review(pod())
    text = (await served.get("metrics"))[1]
    assert 'orion_webhook_decisions_total{outcome="patched",reason="SlotsGiven"} 1.0' in text
    assert 'orion_webhook_review_seconds_count{outcome="patched"} 1.0' in text
    assert 'orion_webhook_objects{kind="GPUShare"} 0.0' in text


async def test_the_webhook_is_not_ready_before_the_first_lists(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    authority.server("webhook", ["127.0.0.1"]).write(tmp_path, "tls")
    listening = Listening("127.0.0.1", 0, tmp_path / "tls.crt", tmp_path / "tls.key")
    started = asyncio.Event()
    webhook = Webhook(Access("http://127.0.0.1:9", None), Defaults(), listening)
    running = asyncio.create_task(webhook.run(lambda _: started.set()))
    await asyncio.wait_for(started.wait(), DEADLINE)
    served = Served(webhook, tmp_path, authority)
    try:
        assert (await served.get("readyz"))[0] == 503
        assert (await served.get("healthz"))[0] == 200
        assert (await served.post(question(pod())))[0] == 503
    finally:
        await served.session.close()
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


# -- Certificates ------------------------------------------------------------------------------------------------------


async def serial(served: Served) -> int:
    """Return the serial number of the certificate that a new connection gets."""
    context = ssl.create_default_context(cafile=str(served.authority.certificate_path))
    _, writer = await asyncio.open_connection("127.0.0.1", served.webhook.port, ssl=context)
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    await writer.wait_closed()
    return x509.load_der_x509_certificate(shown).serial_number


async def test_a_new_certificate_is_served_and_old_connections_continue(served: Served) -> None:
    assert (await served.review(pod()))["allowed"]
    kept = list(served.session.connector._conns)  # type: ignore[union-attr]
    before = await serial(served)
    served.issue()
    assert served.webhook.certificate.refresh()
    assert await serial(served) != before
    assert (await served.review(pod()))["allowed"]
    assert list(served.session.connector._conns) == kept  # type: ignore[union-attr]


async def test_mismatched_and_damaged_files_never_reach_the_server(served: Served) -> None:
    before = await serial(served)
    issued = served.authority.server("webhook", ["127.0.0.1"])
    (served.folder / "tls.crt").write_bytes(issued.certificate)
    assert not served.webhook.certificate.refresh()
    assert await serial(served) == before
    (served.folder / "tls.key").write_bytes(issued.key)
    assert served.webhook.certificate.refresh()
    after = await serial(served)
    assert after != before
    (served.folder / "tls.crt").write_bytes(b"-----BEGIN nonsense")
    assert not served.webhook.certificate.refresh()
    (served.folder / "tls.key").unlink()
    assert not served.webhook.certificate.refresh()
    assert await serial(served) == after


@pytest.mark.parametrize("where", ["pathlib.Path.read_bytes", "os.memfd_create"])
async def test_files_that_could_not_be_read_for_a_moment_are_read_again(
    served: Served, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await serial(served)
    served.issue()

    def fail(*_: object) -> bytes:
        raise OSError(errno.ENFILE, "Too many open files in system")

    with monkeypatch.context() as patched:
        patched.setattr(where, fail)
        for _ in range(3):
            assert not served.webhook.certificate.refresh()
    assert await serial(served) == before
    assert 'result="refused"} 1.0' in (await served.get("metrics"))[1]
    assert served.webhook.certificate.refresh()
    assert await serial(served) != before


async def test_reviews_continue_while_certificates_change(served: Served) -> None:
    shown = set()
    for _ in range(20):
        served.issue()
        asked = asyncio.create_task(served.review(pod()))
        await serial(served)  # a review during the change may get either certificate
        served.webhook.certificate.refresh()
        shown.add(await serial(served))
        assert (await asked)["allowed"]
    assert len(shown) == 20


def test_the_webhook_does_not_start_without_a_certificate(tmp_path: Path) -> None:
    from orion.operator.webhook.metrics import Metrics

    with pytest.raises(Unreadable, match=r"tls\.crt cannot be read"):
        LiveCertificate(tmp_path / "tls.crt", tmp_path / "tls.key", Metrics())


# -- Shutdown ----------------------------------------------------------------------------------------------------------


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def test_an_idle_connection_stays_until_the_client_closes_it(served: Served) -> None:
    assert served.webhook._listening.finish_s > 90  # after which an API server closes an idle connection
    (running,) = (each for each in asyncio.all_tasks() if each.get_name() == "webhook")
    assert (await served.review(pod()))["allowed"]
    os.kill(os.getpid(), signal.SIGTERM)
    await eventually_async(lambda: not listens(served.webhook.port))
    assert (await served.review(pod()))["allowed"]  # on the connection that was idle; its answer closes it
    await asyncio.wait_for(running, DEADLINE)


async def test_sigterm_ends_readiness_first_and_loses_no_review(served: Served) -> None:
    answers: list[int] = []

    async def ask() -> None:
        # The listener has closed: the connection is refused, or reset before it was accepted. No review was sent.
        with contextlib.suppress(aiohttp.ClientConnectorError, aiohttp.ClientOSError):
            while True:
                status, _ = await served.post(question(pod()))
                answers.append(status)

    asking = [asyncio.create_task(ask()) for _ in range(4)]
    await eventually_async(lambda: len(answers) > 20)
    os.kill(os.getpid(), signal.SIGTERM)
    await eventually_async(lambda: served.webhook._leaving)
    assert await served.get("readyz") == (503, "shutting down\n")
    before = len(answers)
    await asyncio.wait_for(asyncio.gather(*asking), DEADLINE)
    assert len(answers) > before
    assert set(answers) == {200}


async def test_an_answer_quotes_no_large_text_of_a_tenant_and_keeps_its_end(served: Served) -> None:
    large = pod(containers="x" * 90_000)
    container = large["spec"]["containers"][0]
    container["name"] = "c" * 90_000
    status, body = await served.post(question(large))
    message = json.loads(body)["response"]["status"]["message"]
    assert (status, len(message) <= TEXT_MAX) == (200, True)
    assert "annotation orion/containers names 'xxx" in message
    assert shortened("a" * TEXT_MAX) == "a" * TEXT_MAX
    assert shortened("b" * 90_000 + "do this").endswith("bdo this")
