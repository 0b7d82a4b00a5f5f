"""A program that does not log us in leaves people with a sentence: the program, the reason and the next step."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from orion.api_server import credential_programs
from orion.api_server.credentials import NoCluster
from orion.api_server.requests import ApiError, ApiServer
from testbed.authority import Authority
from tests.api_server.log_in_program import V1, V1BETA1, Guarded, Plugin
from tests.processes import is_running
from tests.waiting import eventually

HANGS = "#!/bin/sh\ncd $(dirname $0); sleep 1000 & echo $! $$ > pids; wait\n"


async def refused(plugin: Plugin, sentence: str) -> None:
    """Expect that a request is refused with a sentence, once for all that wait."""
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
async def test_a_program_that_is_not_there_is_said_with_the_hint_how_to_install_it(
    plugin: Plugin, hint: str | None, said: str
) -> None:
    (plugin.folder / "log-in").unlink()
    plugin.entry["installHint"] = hint
    await refused(plugin, f"cannot be started (No such file or directory): {said}")


async def test_a_program_that_fails_is_said_with_its_last_line(plugin: Plugin) -> None:
    plugin.does("#!/bin/sh\necho one >&2; echo 'Token has \033[31mexpired.' >&2; echo >&2; exit 3\n")
    await refused(plugin, "ended with status 3: Token has [31mexpired; fix that, and try again")


async def test_a_program_that_fails_in_silence_or_by_a_signal_is_said(plugin: Plugin) -> None:
    plugin.does("#!/bin/sh\nkill -9 $$\n")
    await refused(plugin, "ended by signal 9: it did not say why; fix that, and try again")


async def test_a_program_that_hangs_is_ended_with_what_it_started(
    plugin: Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credential_programs, "RUN_S", 0.5)
    plugin.does(HANGS)
    await refused(
        plugin, "did not end within 0.5 s and was ended: see with kubectl and the same kubeconfig what it waits for"
    )
    async with asyncio.timeout(10):
        while any(map(is_running, plugin.pids)):
            await asyncio.sleep(0.01)


def test_a_program_ends_with_the_loop_that_runs_it(plugin: Plugin) -> None:
    plugin.does(HANGS)

    async def work() -> None:
        api = ApiServer(plugin.access(), "orion-test")
        asked = asyncio.create_task(api.get("/x"))
        async with asyncio.timeout(10):
            while len(plugin.pids) < 2:
                await asyncio.sleep(0.01)
        asked.cancel()
        await api.close()

    asyncio.run(work())
    eventually(lambda: not any(map(is_running, plugin.pids)), "program and child end")


def test_a_loop_ends_though_it_had_only_just_begun_to_run_a_program(plugin: Plugin) -> None:
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
            f"answered in apiVersion '{V1BETA1}', and the kubeconfig asks for '{V1}': update the program, or write the "
            "kubeconfig again by the command that made it",
        ),
        ({}, "gave neither a token nor a certificate: log in by its own command, and try again"),
        ({"status": {"token": ""}}, "gave neither a token nor a certificate: log in by its own command, and try again"),
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
async def test_an_answer_that_is_no_credential_is_said(plugin: Plugin, answer: Any, sentence: str) -> None:
    if isinstance(answer, dict):
        answer = json.dumps({"kind": "ExecCredential", "apiVersion": V1} | answer)
    (plugin.folder / "answer").write_text(answer)
    await refused(plugin, sentence)


async def test_after_a_log_in_that_went_well_a_failure_is_one_of_the_moment(plugin: Plugin, guarded: Guarded) -> None:
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
def test_an_entry_that_cannot_be_used_is_said(plugin: Plugin, field: str, value: str) -> None:
    plugin.entry[field] = value
    with pytest.raises(NoCluster) as error:
        plugin.access()
    assert str(error.value) == (
        f"exec.{field} of user u in {plugin.kubeconfig} cannot be used here: write the kubeconfig again by the command "
        "that made it"
    )


async def test_a_certificate_that_is_no_pair_with_its_key_is_said(plugin: Plugin, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    plugin.cluster = {"server": "https://127.0.0.1:9"}
    one, other = authority.client("one"), authority.client("other")
    plugin.gives(clientCertificateData=one.certificate.decode(), clientKeyData=other.key.decode())
    await refused(plugin, "gave a certificate and a key that are no pair in PEM: is it up to date?")


def test_a_program_that_needs_a_terminal_is_refused_without_one(plugin: Plugin) -> None:
    plugin.entry["interactiveMode"] = "Always"
    with pytest.raises(NoCluster) as error:
        plugin.access()
    assert str(error.value) == plugin.said("asks for a terminal (interactiveMode): run this in one")
