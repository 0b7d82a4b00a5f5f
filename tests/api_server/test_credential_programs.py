"""Credential plugins: small real programs that a kubeconfig names, with an API server that checks the credentials."""

import asyncio
import base64
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from orion.api_server import credential_programs
from orion.api_server.credentials import find_access
from orion.api_server.requests import ApiError, ApiServer
from tests.api_server.log_in_program import V1, V1BETA1, Guarded, Plugin
from tests.waiting import DEADLINE


def in_s(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


# -- Tokens ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [V1, V1BETA1])
async def test_one_run_gives_the_token_of_all_requests(plugin: Plugin, guarded: Guarded, version: str) -> None:
    plugin.entry["apiVersion"] = version
    plugin.gives(version, token="token-RUN", expirationTimestamp=in_s(3600))
    api = guarded.api()
    await asyncio.gather(*(api.get(f"/{number}") for number in range(8)))
    await api.post("/x", {})
    assert guarded.seen == ["token-1"] * 9
    assert len(plugin.runs) == 1


async def test_a_program_gets_the_data_of_the_kubeconfig(plugin: Plugin, guarded: Guarded, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_bytes(b"authority")
    config = {"audience": "a"}
    plugin.cluster |= {
        "server": guarded.script.url,
        "certificate-authority": "ca.pem",
        "tls-server-name": "api",
        "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": config}],
    }
    plugin.entry |= {"args": ["--cluster", "a b"], "env": [{"name": "MARK", "value": "m"}], "provideClusterInfo": True}
    plugin.gives(token="t")
    await guarded.api().get("/x")
    (run,) = plugin.runs
    assert run["args"] == ["--cluster", "a b"]
    assert (run["mark"], run["stdin"]) == ("m", "")
    cluster = {
        "server": guarded.script.url,
        "tls-server-name": "api",
        "certificate-authority-data": base64.b64encode(b"authority").decode(),
        "config": config,
    }
    assert run["info"] == {
        "apiVersion": V1,
        "kind": "ExecCredential",
        "spec": {"interactive": False, "cluster": cluster},
    }


async def test_a_command_without_a_slash_is_found_in_path(
    plugin: Plugin, guarded: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    plugin.entry |= {"command": "log-in", "args": None, "env": None}
    plugin.gives(token="t")
    await guarded.api().get("/x")
    assert plugin.runs[0]["info"]["spec"] == {"interactive": False}


async def test_a_token_is_renewed_once_shortly_before_it_expires(plugin: Plugin, guarded: Guarded) -> None:
    plugin.gives(token="token-RUN", expirationTimestamp=in_s(3600))
    access = plugin.access()
    api = ApiServer(access, "orion-test")
    await api.get("/x")
    later = datetime.now(UTC) + timedelta(seconds=3600 - 20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(credential_programs, "datetime", type("Later", (), {"now": staticmethod(lambda _: later)}))
        plugin.gives(token="token-RUN", expirationTimestamp=in_s(7200))
        await asyncio.gather(*(api.get("/x") for _ in range(8)))
    await api.close()
    assert guarded.seen == ["token-1"] + ["token-2"] * 8
    assert len(plugin.runs) == 2


async def test_a_rejected_token_causes_one_new_run(plugin: Plugin, guarded: Guarded) -> None:
    plugin.gives(token="token-RUN")
    api = guarded.api()
    await api.get("/x")
    guarded.refused.add("token-1")
    await asyncio.gather(*(api.patch("/x", {"a": 1}) for _ in range(8)))
    assert sorted(guarded.seen) == ["token-1"] * 9 + ["token-2"] * 8
    assert len(plugin.runs) == 2


async def test_a_token_that_is_rejected_again_is_reported(plugin: Plugin, guarded: Guarded) -> None:
    plugin.gives(token="always")
    guarded.refused.add("always")
    with pytest.raises(ApiError, match="401: GET /x: who") as error:
        await guarded.api().get("/x")
    assert (error.value.status, guarded.seen, len(plugin.runs)) == (401, ["always"], 2)


async def test_a_cancelled_request_does_not_end_the_plugin_for_others(plugin: Plugin, guarded: Guarded) -> None:
    plugin.does("#!/bin/sh\ncd $(dirname $0); touch begun; while [ ! -e go ]; do sleep 0.02; done; cat answer\n")
    plugin.gives(token="t")
    api = guarded.api()
    first, second = asyncio.create_task(api.get("/1")), asyncio.create_task(api.get("/2"))
    async with asyncio.timeout(DEADLINE):
        while not (plugin.folder / "begun").exists():
            await asyncio.sleep(0.01)
        first.cancel()
        (plugin.folder / "go").touch()
        await second
    assert guarded.seen == ["t"]


async def test_a_watch_also_uses_the_plugin(plugin: Plugin, guarded: Guarded) -> None:
    plugin.gives(token="t")
    async for _ in guarded.api().events("/x", 5):
        pass
    assert (guarded.seen, guarded.script.requests) == (["t"], ["GET /x"])


async def test_a_program_may_take_longer_than_an_answer(plugin: Plugin, guarded: Guarded) -> None:
    plugin.does("#!/bin/sh\nsleep 2.5; cat $(dirname $0)/answer\n")
    plugin.gives(token="t")
    api = ApiServer(plugin.access(), "orion-test", attempt_s=2.0)
    await api.get("/x")
    await api.close()


def test_a_token_of_the_kubeconfig_wins_over_a_plugin(plugin: Plugin) -> None:
    plugin.access()
    plugin.kubeconfig.write_text(plugin.kubeconfig.read_text().replace('{"exec"', '{"token": "mine", "exec"'))
    access = find_access(plugin.kubeconfig)
    assert (access.token, access.log_in) == ("mine", None)


# -- Terminals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "interactive"), [("Always", True), ("IfAvailable", True), ("Never", False)])
async def test_at_a_terminal_a_plugin_may_ask_unless_its_mode_is_never(
    plugin: Plugin,
    guarded: Guarded,
    mode: str,
    interactive: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ours, terminal = os.openpty()
    kept = os.dup(0)
    os.dup2(terminal, 0)  # a plugin inherits our standard input
    try:
        with open(0, closefd=False) as stdin:
            monkeypatch.setattr(sys, "stdin", stdin)
            os.write(ours, b"1234\n")
            plugin.entry["interactiveMode"] = mode
            plugin.does(
                f"#!{sys.executable} -S\nimport json, os, sys\nprint('code?', file=sys.stderr)\n"
                "info = json.loads(os.environ['KUBERNETES_EXEC_INFO'])\n"
                'token = f\'{info["spec"]["interactive"]}-{sys.stdin.readline().strip()}\'\n'
                f"print(json.dumps({{'apiVersion': '{V1}', 'kind': 'ExecCredential', 'status': {{'token': token}}}}))\n"
            )
            await guarded.api().get("/x")
    finally:
        os.dup2(kept, 0)
        for each in (ours, terminal, kept):
            os.close(each)
    assert guarded.seen == ["True-1234" if interactive else "False-"]
    assert capsys.readouterr().err == ("code?\n" if interactive else "")
