"""A stand-in for the operator, which a test controls: it sends an agent the pods of its node, over TLS.

It is a real server with a certificate of its own. The API server beside it has only the ConfigMap with that
certificate. tests/cluster/test_agent_grants.py uses the real operator and a real API server.
"""

import contextlib
import json
import socketserver
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from orion.node_pods import LENGTH_BYTES, frame
from orion.node_pods.node_pods_pb2 import Answer, Call, Pod, PodsOfNode, Refusal
from orion.operator.listening.tls import load
from testbed.authority import Authority
from tests.node_agent.node_stand_in import NODE

NAME = "orion-system/orion-operator"
TOKEN = "the token of a-node"


class StandInOperator:
    """The operator, and the API server with its certificate.

    Args:
        folder: for its certificate and the agent's token.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._changed = threading.Condition()
        self._version, self._streams = 0, 0
        self._pods: dict[str, Pod] = {}
        self._rollout, self._allocation = "", ""
        self._away = False
        self._port, self._server = 0, None
        self.token = folder / "operator-token"
        self.tokens: list[str] = []
        """ The tokens with which agents have called. """
        self.accepted = TOKEN
        self.certificates: dict[str, str] = {}
        self.token.write_text(f"{TOKEN}\n")
        handler = type("Handler", (_Handler,), {"operator": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        self.replace()

    def options(self) -> list[str]:
        """Return the options of an agent that uses this operator."""
        url = f"http://127.0.0.1:{self._http.server_address[1]}"
        named = {"name": "it", "cluster": {"server": url}, "user": {"token": "x"}}
        context = {"name": "it", "context": {"cluster": "it", "user": "it"}}
        config = {"current-context": "it", "clusters": [named], "users": [named], "contexts": [context]}
        path = self._folder / "kubeconfig"
        path.write_text(json.dumps(config))
        return [
            *("--node-name", NODE, "--kubeconfig", str(path), "--operator-address", f"localhost:{self._port}"),
            *("--operator", NAME, "--operator-token", str(self.token)),
        ]

    @property
    def away(self) -> bool:
        """Whether no operator and no API server answers."""
        return self._away

    @away.setter
    def away(self, away: bool) -> None:
        if away and not self._away:
            self._away = True
            self._stop()
        elif self._away and not away:
            self._away = False
            self._start()

    def replace(self, publish: bool = True) -> None:
        """Serve with a new certificate on the same port, as a new replica does."""
        self._stop()
        made = Authority(self._folder / f"authority-{len(self.tokens)}-{self._version}-{self._streams}")
        self._issued = made.server("operator", ["localhost", "127.0.0.1"])
        self._root = made.certificate.decode()
        if publish:
            self.publish()
        self._start()

    def publish(self) -> None:
        """Write the certificate into the ConfigMap."""
        self.certificates = {"operator-0": self._root}

    def put(
        self,
        name: str,
        grant: dict[str, Any] | str | None = None,
        uid: str = "",
        created: int = 0,
        ended: bool = False,
        revision: str = "",
        namespace: str = "default",
        kept: str = "",
    ) -> None:
        """Create or change a pod; `created` is a number of seconds."""
        text = "" if grant is None else grant if isinstance(grant, str) else json.dumps(grant)
        at = f"2026-01-01T00:00:{created:02}Z"
        pod = Pod(
            namespace=namespace,
            name=name,
            uid=uid or f"uid-{name}",
            created=at,
            ended=ended,
            grant=text,
            revision=revision,
            kept=kept,
        )
        self._change(self._pods | {name: pod})

    def delete(self, name: str) -> None:
        self._change({each: pod for each, pod in self._pods.items() if each != name})

    def roll_out(self, revision: str) -> None:
        """Name the revision of a workload for which the node should have one hp slot more; empty: none."""
        self._rollout = revision
        self._change(self._pods)

    def choose(self, allocation: str) -> None:
        """Label the node: who should give its slots."""
        self._allocation = allocation
        self._change(self._pods)

    def cut(self) -> None:
        """End every stream, as a replica does after some minutes."""
        with self._changed:
            self._streams += 1
            self._changed.notify_all()

    def stop(self) -> None:
        self._stop()
        self._http.shutdown()
        self._http.server_close()

    def serve(self, connection: ssl.SSLSocket, server: object) -> None:
        """Serve one agent that has called a server, until its stream ends or the server is replaced."""
        call = Call.FromString(_message(connection))
        if server is not self._server:
            return
        self.tokens.append(call.token)
        if call.token != self.accepted:
            refusal = Refusal(code="UNAUTHENTICATED", reason="the token is not valid")
            connection.sendall(frame(Answer(refusal=refusal)))
            return
        streams, sent = self._streams, -1
        while True:
            with self._changed:
                while streams == self._streams and server is self._server and sent == self._version:
                    self._changed.wait()
                if streams != self._streams or server is not self._server:
                    return
                sent, pods = self._version, list(self._pods.values())
                message = PodsOfNode(pods=pods, rollout=self._rollout, allocation=self._allocation)
            connection.sendall(frame(Answer(pods=message)))

    def _change(self, pods: dict[str, Pod]) -> None:
        with self._changed:
            self._pods, self._version = pods, self._version + 1
            self._changed.notify_all()

    def _start(self) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        load(context, self._issued.certificate + self._issued.key)
        handler = type("Agents", (_Agents,), {"operator": self, "context": context})
        self._server = _Server(("127.0.0.1", self._port), handler)
        self._port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def _stop(self) -> None:
        server, self._server = self._server, None
        self.cut()
        if server is not None:
            server.shutdown()
            server.server_close()

    _server: "_Server | None"


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True


class _Agents(socketserver.BaseRequestHandler):
    operator: StandInOperator
    context: ssl.SSLContext

    def handle(self) -> None:
        with contextlib.suppress(OSError), self.context.wrap_socket(self.request, server_side=True) as connection:
            self.operator.serve(connection, self.server)


def _message(connection: ssl.SSLSocket) -> bytes:
    size = int.from_bytes(connection.recv(LENGTH_BYTES), "big")
    return connection.recv(size)


class _Handler(BaseHTTPRequestHandler):
    operator: StandInOperator

    def do_GET(self) -> None:
        namespace, name = NAME.split("/")
        if self.operator.away or self.path != f"/api/v1/namespaces/{namespace}/configmaps/{name}":
            self.send_error(503 if self.operator.away else 404)
            return
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"data": self.operator.certificates}).encode())

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Log nothing."""
