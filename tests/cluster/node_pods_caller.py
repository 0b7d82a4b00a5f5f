"""A node's agent, as the operator sees it: a call with a real token of a pod on that node. It only listens."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from typing import Any

from kubernetes import client

from orion.node_pods import LENGTH_BYTES, frame
from orion.node_pods.node_pods_pb2 import Answer, Call, Pod, PodsOfNode

ACCOUNT, CONFIG_MAP, AUDIENCE = "orion-agent", "orion-operator", "orion-operator"


def prepare(api: client.ApiClient, namespace: str) -> None:
    """Make what the chart makes: the agents' service account, and the ConfigMap of the operator's certificates."""
    core = client.CoreV1Api(api)
    for make, name in (
        (core.create_namespaced_service_account, ACCOUNT),
        (core.create_namespaced_config_map, CONFIG_MAP),
    ):
        with contextlib.suppress(client.ApiException):  # another test of the same control plane has made it
            make(namespace, {"metadata": {"name": name}})


def certificates(api: client.ApiClient, namespace: str) -> dict[str, str]:
    """Return the certificates of all replicas of the operator."""
    return dict(client.CoreV1Api(api).read_namespaced_config_map(CONFIG_MAP, namespace).data or {})


def token(
    api: client.ApiClient,
    namespace: str,
    node: str = "",
    audience: str = AUDIENCE,
    account: str = ACCOUNT,
    seconds: int = 3600,
) -> str:
    """Return a token as the kubelet of a node mounts it into a pod of the account; no node: it belongs to no pod."""
    core = client.CoreV1Api(api)
    wanted: dict[str, Any] = {"expirationSeconds": seconds, "audiences": [audience]}
    if node:
        spec = {"nodeName": node, "serviceAccountName": account, "containers": [{"name": "agent", "image": "none"}]}
        pod = core.create_namespaced_pod(namespace, {"metadata": {"generateName": "agent-"}, "spec": spec})
        wanted["boundObjectRef"] = {"kind": "Pod", "apiVersion": "v1", "name": pod.metadata.name}
    made = core.create_namespaced_service_account_token(account, namespace, {"spec": wanted})
    return str(made.status.token)


class Stream:
    """A call of an operator of this machine: an iterator of its answers."""

    def __init__(self, port: int, trusted: Mapping[str, str], bearer: str | None) -> None:
        context = ssl.create_default_context()
        if trusted:
            context.load_verify_locations(cadata="\n".join(trusted.values()))
        with socket.create_connection(("localhost", port), timeout=120) as plain:  # TLS takes the descriptor over
            self._socket = context.wrap_socket(plain, server_hostname="localhost")
        self._socket.sendall(frame(Call(token=bearer)))

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def __iter__(self) -> "Stream":
        return self

    def __next__(self) -> PodsOfNode:
        size = int.from_bytes(self._exactly(LENGTH_BYTES), "big")
        answer = Answer.FromString(self._exactly(size))
        if answer.HasField("refusal"):
            raise Refused(answer.refusal.code, answer.refusal.reason)
        return answer.pods

    def end(self) -> None:
        """End the call; another thread may wait for an answer."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            part = self._socket.recv(size - len(found))
            if not part:
                raise Refused("UNAVAILABLE", "the connection was closed")
            found += part
        return found


class Refused(Exception):
    """A call has ended, with this code and this reason."""


def refusal(port: int, trusted: Mapping[str, str], bearer: str | None) -> tuple[str, str]:
    """Return the code and the sentence with which a call ends; empty: it gets a message."""
    try:
        with Stream(port, trusted, bearer) as stream:
            next(stream)
    except OSError as error:
        return "UNAVAILABLE", str(error)
    except Refused as refused:
        code, reason = refused.args
        return code, reason
    return "", ""


class Caller:
    """Listens to one operator until it is closed, and calls again whenever its call has ended.

    Args:
        port: returns the operator's port on this machine; 0: it does not serve yet.
        trusted: returns the certificates of this moment.
        bearer: the token.
        grants: gets each pod's name with each grant that was ever received for it.
    """

    def __init__(
        self,
        port: Callable[[], int],
        trusted: Callable[[], Mapping[str, str]],
        bearer: str,
        grants: set[tuple[str, str]] | None = None,
    ) -> None:
        self._port, self._trusted, self._bearer = port, trusted, bearer
        self._grants = set[tuple[str, str]]() if grants is None else grants
        self.pods: dict[str, Pod] | None = None
        """ The pods of the node by name, as last received; None: the operator does not answer. """
        self.messages = 0
        self.ends: list[str] = []
        """ The status with which each call ended. """
        self._closed = threading.Event()
        self._stream: Stream | None = None
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._closed.set()
        if self._stream is not None:
            self._stream.end()
        self._thread.join(30)

    def _listen(self) -> None:
        while not self._closed.is_set():
            try:
                port, trusted = self._port(), self._trusted()
                if not port or not trusted:
                    continue
                with Stream(port, trusted, self._bearer) as stream:
                    self._stream = stream
                    for message in stream:
                        self.messages += 1
                        self.pods = {pod.name: pod for pod in message.pods}
                        self._grants |= {(pod.name, pod.grant) for pod in message.pods if pod.grant}
            except Refused as refused:
                self.ends.append(refused.args[0])
            except OSError:
                self.ends.append("UNAVAILABLE")
            except client.ApiException:
                pass
            finally:
                self.pods = None
                self._closed.wait(0.05)
