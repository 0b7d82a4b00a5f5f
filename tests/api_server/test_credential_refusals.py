"""The error of a credential plugin that fails names the program, the reason and the next step."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from orion.api_server import credential_programs
from orion.api_server.kubeconfigs import NoCluster
from orion.api_server.requests import ApiError, ApiServer
from testbed.authority import Authority
from tests.api_server.log_in_program import V1, V1BETA1, Guarded, Plugin
from tests.processes import is_running
from tests.waiting import DEADLINE, eventually

HANGS = "#!/bin/sh\ncd $(dirname $0); sleep 1000 & echo $! $$ > pids; wait\n"


async def refused(plugin: Plugin, sentence: str) -> None:
    """Expect that two concurrent requests fail with the same sentence."""
    api = ApiServer(plugin.access(), "orion-test")
    errors = await asyncio.gather(api.get("/x"), api.get("/y"), return_exceptions=True)
    await api.close()
    assert [type(error) for error in errors] == [NoCluster] * 2
    assert [str(error) for error in errors] == [plugin.said(sentence)] * 2


@pytest.mark.parametrize(
    ("hint", "said"),
    [
        ("Install it:\n\n  brew install log-in\n", "Install it: brew install log-in"),
        (None, "install it, or put it where $PATH finds it"),
    ],
)
async def test_a_missing_program_is_reported_with_its_install_hint(plugin: Plugin, hint: str | None, said: str) -> None:
    (plugin.folder / "log-in").unlink()
    plugin.entry["installHint"] = hint
    await refused(plugin, f"cannot be started (No such file or directory): {said}")


async def test_a_failed_program_is_reported_with_its_last_line(plugin: Plugin) -> None:
    plugin.does("#!/bin/sh\necho one >&2; echo 'Token has \033[31mexpired.' >&2; echo >&2; exit 3\n")
    await refused(plugin, "ended with status 3: Token has [31mexpired; fix that, and try again")


async def test_a_program_that_a_signal_ends_without_output_is_reported(plugin: Plugin) -> None:
    plugin.does("#!/bin/sh\nkill -9 $$\n")
    await refused(plugin, "ended by signal 9: it printed no reason; fix that, and try again")


async def test_a_program_that_hangs_is_killed_with_its_children(
    plugin: Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credential_programs, "RUN_S", 0.5)
    plugin.does(HANGS)
    await refused(
        plugin, "did not end within 0.5 s and was killed: run kubectl with the same kubeconfig to see what it waits for"
    )
    async with asyncio.timeout(DEADLINE):
        while any(map(is_running, plugin.pids)):
            await asyncio.sleep(0.01)


def test_a_program_ends_with_its_event_loop(plugin: Plugin) -> None:
    plugin.does(HANGS)

    async def work() -> None:
        api = ApiServer(plugin.access(), "orion-test")
        asked = asyncio.create_task(api.get("/x"))
        async with asyncio.timeout(DEADLINE):
            while len(plugin.pids) < 2:
                await asyncio.sleep(0.01)
        asked.cancel()
        await api.close()

    asyncio.run(work())
    eventually(lambda: not any(map(is_running, plugin.pids)), "program and child end")


def test_an_event_loop_ends_while_it_starts_a_program(plugin: Plugin) -> None:
    plugin.does(HANGS)
    ours = Path("/proc/thread-self/children")

    async def work() -> None:
        api = ApiServer(plugin.access(), "orion-test")
        asked = asyncio.create_task(api.get("/x"))
        while not ours.read_text() and not asked.done():
            await asyncio.sleep(0)
        await api.close()

    asyncio.run(work())
    assert not ours.read_text()


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ("hello", "printed no JSON object: is it a credential plugin, and up to date?"),
        ("", "printed no JSON object: is it a credential plugin, and up to date?"),
        (
            {"kind": "Config", "apiVersion": "v1"},
            "printed kind 'Config', not ExecCredential: is it a credential plugin?",
        ),
        (
            {"kind": "ExecCredential", "apiVersion": V1BETA1},
            f"answered in apiVersion '{V1BETA1}', but the kubeconfig requires '{V1}': update the program, or generate "
            "the kubeconfig again with the command that created it",
        ),
        ({}, "gave neither a token nor a certificate: log in with its own command, then retry"),
        ({"status": {"token": ""}}, "gave neither a token nor a certificate: log in with its own command, then retry"),
        ({"status": {"clientKeyData": "k"}}, "gave a key without its certificate: is it up to date?"),
        (
            {"status": {"token": "t", "expirationTimestamp": "soon"}},
            "printed an ExecCredential whose status.expirationTimestamp cannot be read: is it a credential plugin, and "
            "up to date?",
        ),
        (
            {"status": {"token": "two\nlines"}},
            "printed an ExecCredential whose status.token cannot be read: is it a credential plugin, and up to date?",
        ),
    ],
    ids=["text", "nothing", "kind", "version", "no status", "no token", "half", "expiry", "token"],
)
async def test_an_output_that_is_not_a_credential_is_reported(plugin: Plugin, answer: Any, sentence: str) -> None:
    if isinstance(answer, dict):
        answer = json.dumps({"kind": "ExecCredential", "apiVersion": V1} | answer)
    (plugin.folder / "answer").write_text(answer)
    await refused(plugin, sentence)


async def test_after_a_successful_log_in_a_failure_counts_as_temporary(plugin: Plugin, guarded: Guarded) -> None:
    plugin.gives(token="t")
    api = guarded.api()
    await api.get("/x")
    guarded.refused.add("t")
    (plugin.folder / "answer").write_text("")
    with pytest.raises(ApiError, match="printed no JSON object") as error:
        await api.get("/x")
    assert error.value.status == 0
    plugin.gives(token="new")
    await api.get("/x")


@pytest.mark.parametrize(
    ("field", "value"),
    [("apiVersion", "client.authentication.k8s.io/v1alpha1"), ("command", ""), ("interactiveMode", "Sometimes")],
)
def test_an_unusable_exec_entry_is_reported(plugin: Plugin, field: str, value: str) -> None:
    plugin.entry[field] = value
    with pytest.raises(NoCluster) as error:
        plugin.access()
    assert str(error.value) == (
        f"exec.{field} of user u in {plugin.kubeconfig} is unusable: generate the kubeconfig again with the command "
        "that created it"
    )


async def test_a_certificate_that_does_not_match_its_key_is_reported(plugin: Plugin, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    plugin.cluster = {"server": "https://127.0.0.1:9"}
    one, other = authority.client("one"), authority.client("other")
    plugin.gives(clientCertificateData=one.certificate.decode(), clientKeyData=other.key.decode())
    await refused(plugin, "gave a certificate and a key that are not a pair in PEM: is it up to date?")


def test_a_program_that_needs_a_terminal_is_rejected_without_one(plugin: Plugin) -> None:
    plugin.entry["interactiveMode"] = "Always"
    with pytest.raises(NoCluster) as error:
        plugin.access()
    assert str(error.value) == plugin.said("asks for a terminal (interactiveMode): run this in one")
