"""A real credential plugin, a kubeconfig beside it, and fake API servers that check the credentials of requests."""

import json
import ssl
import sys
from pathlib import Path
from typing import Any

from aiohttp import web

from orion.api_server.access import Access
from orion.api_server.credentials import find_access
from orion.api_server.requests import ApiServer
from testbed.authority import Authority
from tests.operator.scripted_api import ScriptedApi

V1, V1BETA1 = "client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"
PROGRAM = f"""#!{sys.executable} -S
# Prints the file `answer` beside it, with the number of this run in place of RUN in token-RUN; records how it was run.
# RUN alone is also found in one of 400 certificates or keys, by chance.
import json, os, pathlib, sys
here = pathlib.Path(__file__).parent
run = here / "runs"
number = len(run.read_text().splitlines()) + 1 if run.exists() else 1
with run.open("a") as file:
    file.write(json.dumps({{"args": sys.argv[1:], "info": json.loads(os.environ["KUBERNETES_EXEC_INFO"]),
                           "mark": os.environ.get("MARK"), "stdin": sys.stdin.read()}}) + "\\n")
print((here / "answer").read_text().replace("token-RUN", f"token-{{number}}"))
"""


class Plugin:
    """A credential plugin in a folder, and a kubeconfig beside it that uses the plugin."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kubeconfig = folder / "kubeconfig"
        self.entry: dict[str, Any] = {"apiVersion": V1, "command": "./log-in", "interactiveMode": "Never"}
        self.cluster: dict[str, Any] = {"server": "http://127.0.0.1:9"}
        self.does(PROGRAM)

    def does(self, text: str) -> None:
        """Write the program."""
        program = self.folder / "log-in"
        program.write_text(text)
        program.chmod(0o755)

    def gives(self, version: str = V1, kind: str = "ExecCredential", **status: Any) -> None:
        """Let the program print a credential."""
        (self.folder / "answer").write_text(json.dumps({"apiVersion": version, "kind": kind, "status": status}))

    @property
    def runs(self) -> list[dict[str, Any]]:
        file = self.folder / "runs"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    @property
    def pids(self) -> list[int]:
        """The process IDs that the program has recorded: its own and its child's."""
        file = self.folder / "pids"
        return [int(pid) for pid in file.read_text().split()] if file.exists() else []

    def access(self) -> Access:
        self.kubeconfig.write_text(
            json.dumps({
                "clusters": [{"name": "c", "cluster": self.cluster}],
                "users": [{"name": "u", "user": {"exec": self.entry}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            })
        )  # fmt: skip
        return find_access(self.kubeconfig)

    def said(self, sentence: str) -> str:
        """Return the whole error message, which begins with the description of this program."""
        return f"./log-in, which logs in user u in {self.kubeconfig}, {sentence}"


class Guarded:
    """A fake API server that rejects some tokens, and a client that uses the plugin."""

    def __init__(self, script: ScriptedApi, plugin: Plugin) -> None:
        self.script, self.plugin = script, plugin
        self.seen: list[str] = []
        self.refused: set[str] = set()
        script.answer = self._answer
        plugin.cluster["server"] = script.url
        self._opened: list[ApiServer] = []

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        token = request.headers.get("Authorization", "")
        self.seen.append(token.removeprefix("Bearer "))
        return web.json_response({"message": "who?"}, status=401 if self.seen[-1] in self.refused else 200)

    def api(self) -> ApiServer:
        self._opened.append(ApiServer(self.plugin.access(), "orion-test"))
        return self._opened[-1]

    async def close(self) -> None:
        for each in self._opened:
            await each.close()


class OverTls:
    """A fake API server that authenticates clients by certificate."""

    def __init__(self, authority: Authority, folder: Path) -> None:
        certificate, key = authority.server("api", ["127.0.0.1"]).write(folder, "api")
        self.tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.certificate_path)
        self.tls.verify_mode = ssl.CERT_OPTIONAL
        self.tls.load_cert_chain(certificate, key)
        self.seen: list[str] = []
        self.refused: set[str] = set()
        self.url = ""
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(application, shutdown_timeout=0.1)

    async def start(self) -> None:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self.tls).start()
        self.url = f"https://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        shown = request.transport.get_extra_info("peercert") or {}
        names = dict(pair for part in shown.get("subject", ()) for pair in part)
        self.seen.append(names.get("commonName", ""))
        return web.json_response({"message": "who?"}, status=401 if self.seen[-1] in self.refused else 200)
