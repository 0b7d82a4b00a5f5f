"""Credentials for the API server: kubeconfigs, the pod's service account, renewed tokens, and errors."""

import asyncio
import base64
import json
import re
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from orion.api_server import credentials
from orion.api_server.access import Access
from orion.api_server.credentials import find_access
from orion.api_server.kubeconfigs import NoCluster
from orion.api_server.requests import ApiError, ApiServer
from testbed.authority import Authority
from tests.operator.scripted_api import ScriptedApi


@pytest.fixture(autouse=True)
def _nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def kubeconfig(path: Path, user: dict[str, Any], **cluster: Any) -> Path:
    path.write_text(
        json.dumps({
            "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9/", **cluster}}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        })
    )  # fmt: skip
    return path


async def asked(access: Access, script: ScriptedApi) -> list[str]:
    """Send two requests; return the `Authorization` headers that the server got."""
    seen: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        seen.append(request.headers.get("Authorization", ""))
        return web.json_response({})

    script.answer, access.url = answer, script.url
    api = ApiServer(access, "orion-test")
    for _ in range(2):
        await api.get("/x")
    await api.close()
    return seen


async def test_the_token_of_a_kubeconfig_is_sent(tmp_path: Path, script: ScriptedApi) -> None:
    access = find_access(kubeconfig(tmp_path / "k", {"token": "mine"}))
    assert access.url == "http://127.0.0.1:9"
    assert await asked(access, script) == ["Bearer mine"] * 2


async def test_the_user_of_a_kubeconfig_acts_as_another_one(tmp_path: Path, script: ScriptedApi) -> None:
    """Otherwise `orion cleanup` would have more rights than kubectl with the same kubeconfig."""
    seen: list[list[tuple[str, str]]] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        seen.append(sorted(pair for pair in request.headers.items() if pair[0].startswith("Impersonate-")))
        return web.json_response({})

    extra = {"example.org/team": ["a", "b"]}
    user = {"token": "mine", "as": "reader", "as-uid": "7", "as-groups": ["g", "h"], "as-user-extra": extra}
    access = find_access(kubeconfig(tmp_path / "k", user))
    script.answer, access.url = answer, script.url
    api = ApiServer(access, "orion-test")
    await api.get("/x")
    await api.close()
    key = "Impersonate-Extra-example.org%2Fteam"
    others = [("Impersonate-Uid", "7"), ("Impersonate-User", "reader")]
    assert seen == [[(key, "a"), (key, "b"), ("Impersonate-Group", "g"), ("Impersonate-Group", "h"), *others]]


async def test_a_token_file_is_found_beside_its_kubeconfig(tmp_path: Path, script: ScriptedApi) -> None:
    (tmp_path / "token").write_text("from a file\n")
    access = find_access(kubeconfig(tmp_path / "k", {"tokenFile": "token"}))
    assert await asked(access, script) == ["Bearer from a file"] * 2


async def test_a_rejected_token_is_read_again_and_the_request_retried(tmp_path: Path, script: ScriptedApi) -> None:
    file = tmp_path / "token"
    file.write_text("old")

    async def answer(request: web.Request) -> web.StreamResponse:
        valid = request.headers["Authorization"] == f"Bearer {file.read_text()}"
        return web.json_response({"body": await request.text()}, status=200 if valid else 401)

    script.answer = answer
    api = ApiServer(Access(script.url, token_file=file), "orion-test")
    await api.get("/x")
    file.write_text("new")
    assert await api.post("/x", {"a": 1}) == {"body": '{"a":1}'}
    assert script.requests == ["GET /x", "POST /x", "POST /x"]
    await api.close()


async def test_a_rejected_token_is_reported(tmp_path: Path, script: ScriptedApi) -> None:
    (tmp_path / "token").write_text("old")
    script.refusals = [(401, {})]
    api = ApiServer(Access(script.url, token_file=tmp_path / "token"), "orion-test")
    with pytest.raises(ApiError) as error:
        await api.get("/x")
    assert (error.value.status, len(script.requests)) == (401, 1)
    await api.close()


async def test_a_token_file_is_reread_periodically(
    tmp_path: Path, script: ScriptedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orion.api_server.access._TOKEN_AGE_S", 0.0)
    (tmp_path / "token").write_text("one")
    access = Access(script.url, token_file=tmp_path / "token")
    assert await asked(access, script) == ["Bearer one"] * 2
    (tmp_path / "token").write_text("two")
    assert await asked(access, script) == ["Bearer two"] * 2


def inline(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def test_certificates_are_read_from_files_and_from_the_kubeconfig(tmp_path: Path) -> None:
    signing = Authority(tmp_path / "authority")
    signing.server("client", ["127.0.0.1"]).write(tmp_path, "client")
    authority = signing.certificate_path
    by_file = {"client-certificate": "client.crt", "client-key": "client.key"}
    cluster = {"server": "https://127.0.0.1:9", "certificate-authority": str(authority)}
    assert find_access(kubeconfig(tmp_path / "k", by_file, **cluster)).tls is not None
    in_place = {f"{name}-data": inline(tmp_path / file) for name, file in by_file.items()}
    cluster = {**cluster, "certificate-authority-data": inline(authority)}
    assert find_access(kubeconfig(tmp_path / "k", in_place, **cluster)).tls is not None


async def test_the_kernel_finds_out_whether_a_silent_api_server_is_still_there(script: ScriptedApi) -> None:
    """A machine that fails says nothing, and a watch is silent for a minute at a time."""
    answered = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await answered.wait()
        return response

    script.answer = answer
    async with Access(script.url).session("orion-test") as session, session.get(script.url) as response:
        assert response.connection is not None
        assert response.connection.transport is not None
        made = response.connection.transport.get_extra_info("socket")
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        idle, interval, count = (made.getsockopt(socket.IPPROTO_TCP, option) for option in options)
        assert idle + interval * count <= 45  # as long as client-go needs
        answered.set()


@pytest.mark.parametrize("trusted", ["ca", "api"])
async def test_an_api_server_is_trusted_as_by_kubectl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trusted: str
) -> None:
    """By its `tls-server-name`, by a certificate below the root, and without what Python 3.13 demands."""
    plain = ssl.create_default_context

    def of_python_3_13(*arguments: Any, **options: Any) -> ssl.SSLContext:
        context = plain(*arguments, **options)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    authority = Authority(tmp_path)
    certificate, key = authority.server("api", ["api.example"]).write(tmp_path, "api")
    served = plain(ssl.Purpose.CLIENT_AUTH)
    served.load_cert_chain(certificate, key)
    server = TestServer(web.Application())
    await server.start_server(ssl=served)
    monkeypatch.setattr(ssl, "create_default_context", of_python_3_13)
    cluster = {"server": f"https://127.0.0.1:{server.port}", "certificate-authority": f"{trusted}.crt"}
    for name, status in (("api.example", 404), ("other.example", 0)):
        access = find_access(kubeconfig(tmp_path / "k", {}, **cluster, **{"tls-server-name": name}))
        api = ApiServer(access, "orion-test")
        with pytest.raises(ApiError) as error:
            await api.get("/x")
        await api.close()
        assert error.value.status == status
        assert access.tls is not None
        assert not access.tls.verify_flags & ssl.VERIFY_X509_STRICT
    await server.close()


def test_of_several_kubeconfigs_the_first_with_a_value_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "first").write_text(
        json.dumps({"current-context": "x", "users": [{"name": "u", "user": {"token": "1"}}]})
    )
    other = kubeconfig(tmp_path / "other", {"token": "2"}, **{"proxy-url": "http://127.0.0.1:8"})
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'absent'}:{tmp_path / 'first'}:{other}")
    access = find_access()
    assert (access.token, access.proxy) == ("1", "http://127.0.0.1:8")


def test_of_several_current_contexts_the_first_wins_as_for_kubectl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`kubernetes.config` takes the last one: `orion cleanup` would clean another cluster than kubectl shows."""
    first, last = tmp_path / "first", tmp_path / "last"
    for file in (first, last):
        text = kubeconfig(file, {"token": file.name}, server=f"http://{file.name}").read_text()
        file.write_text(
            text.replace('"x"', f'"{file.name}"').replace('"c"', f'"{file.name}"').replace('"u"', f'"{file.name}"')
        )
    monkeypatch.setenv("KUBECONFIG", f"{first}:{last}")
    access = find_access()
    assert (access.url, access.token) == ("http://first", "first")


def test_the_namespace_comes_from_the_context(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path / "k", {})
    assert find_access(file).namespace == "default"
    file.write_text(file.read_text().replace('"user": "u"}', '"user": "u", "namespace": "team"}'))
    assert find_access(file).namespace == "team"


def test_in_a_pod_the_service_account_wins_over_the_environment_but_not_over_an_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ca.crt").write_bytes(Authority(tmp_path / "authority").certificate_path.read_bytes())
    monkeypatch.setattr(credentials, "SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path / "k", {})))
    access = find_access()
    assert (access.url, access.token_file) == ("https://[fd00::1]:443", tmp_path / "token")
    assert access.namespace == "default"
    (tmp_path / "namespace").write_text("team")
    assert find_access().namespace == "team"
    assert find_access(tmp_path / "k").url == "http://127.0.0.1:9"


IN_TLS = {"server": "https://x"}
PAIR = {"client-certificate-data": "QQ==", "client-key-data": "QQ=="}
NOT_USABLE = "K is not a usable kubeconfig: "


@pytest.mark.parametrize(
    ("user", "cluster", "sentence"),
    [
        ({}, {"server": ""}, "cluster c in K has no server"),
        ({}, {"server": 1}, "server of cluster c in K is not text"),
        (
            {},
            {**IN_TLS, "certificate-authority-data": "Q!"},
            "certificate-authority-data of cluster c in K is not base64",
        ),
        (
            {},
            {**IN_TLS, "certificate-authority-data": "QQ=="},
            "certificate-authority of cluster c in K is not a certificate in PEM",
        ),
        (
            {},
            {**IN_TLS, "certificate-authority": "gone.crt"},
            "certificate-authority of cluster c in K names a file that cannot be read: F/gone.crt "
            "(No such file or directory)",
        ),
        (
            {"client-certificate": "gone.crt"},
            IN_TLS,
            "client-certificate of user u in K names a file that cannot be read: F/gone.crt "
            "(No such file or directory)",
        ),
        ({"client-key-data": "Q"}, IN_TLS, "client-key-data of user u in K is not base64"),
        ({"client-key-data": "QQ=="}, IN_TLS, "user u in K has only one of client-certificate and client-key"),
        (PAIR, IN_TLS, "client-certificate and client-key of user u in K are not a pair in PEM"),
        ({"token": ["t"]}, {}, "token of user u in K is not text"),
        ({"as-groups": "g"}, {}, "as-groups of user u in K is unusable: write it as kubectl needs it, or remove it"),
        (
            {"auth-provider": {"name": "gcp"}},
            {},
            "user u in K logs in by an auth-provider, which Kubernetes no longer supports: generate the kubeconfig "
            "again with the command that created it",
        ),
    ],
)
def test_an_unusable_entry_is_reported_with_its_file(
    tmp_path: Path, user: dict[str, Any], cluster: dict[str, Any], sentence: str
) -> None:
    expect_error(kubeconfig(tmp_path / "k", user, **cluster), sentence)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            None,
            "no API server is known: K cannot be read (No such file or directory); name a kubeconfig with --kubeconfig "
            "or $KUBECONFIG",
        ),
        ("", NOT_USABLE + "it has no lists of clusters, contexts and users"),
        ("[}", NOT_USABLE + "it is not YAML (line 1, column 2)"),
        ("\0", NOT_USABLE + "it is not YAML"),
        ("users: u", NOT_USABLE + "it has no lists of clusters, contexts and users"),
        ("users: []", "K sets no current context: choose one with `kubectl config use-context`"),
        ("current-context: x", "K has no context x, which current-context names"),
        ("{current-context: x, contexts: [1, {name: x}]}", "context x in K has no cluster"),
        ("{current-context: x, contexts: [{name: x, context: [1]}]}", "context x in K has no fields"),
        (
            "{current-context: x, contexts: [{name: x, context: {cluster: c}}]}",
            "K has no cluster c, which context x in K names",
        ),
        (
            "{current-context: x, contexts: [{name: x, context: {cluster: c, user: u}}], clusters: [{name: c}]}",
            "K has no user u, which context x in K names",
        ),
    ],
)
def test_an_unusable_kubeconfig_is_reported(tmp_path: Path, text: str | None, sentence: str) -> None:
    if text is not None:
        (tmp_path / "k").write_text(text)
    expect_error(tmp_path / "k", sentence)


def expect_error(file: Path, sentence: str) -> None:
    """Expect an error about a kubeconfig; in `sentence` K stands for the file and F for its folder."""
    with pytest.raises(NoCluster) as error:
        find_access(file)
    assert str(error.value) == re.sub(r"\bK\b", str(file), re.sub(r"\bF\b", str(file.parent), sentence))


def test_a_pod_without_a_service_account_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "SERVICE_ACCOUNT", tmp_path / "nothing")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    with pytest.raises(NoCluster, match="this pod has no service account"):
        find_access()
