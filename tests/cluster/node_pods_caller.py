"""A node's agent, as the operator sees it: a call with a real token of a pod on that node. It only listens."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import grpc
from kubernetes import client

from orion.node_pods.node_pods_pb2 import Pod, WatchRequest
from orion.node_pods.node_pods_pb2_grpc import NodePodsStub

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


@contextlib.contextmanager
def call(port: int, trusted: Mapping[str, str], bearer: str | None) -> Iterator[Any]:
    """Call an operator of this machine; yields the stream of messages."""
    roots = grpc.ssl_channel_credentials("".join(trusted.values()).encode() or b"none")
    metadata = [] if bearer is None else [("authorization", f"Bearer {bearer}")]
    with grpc.secure_channel(f"localhost:{port}", roots, options=[("grpc.enable_http_proxy", 0)]) as channel:
        stream = NodePodsStub(channel).Watch(WatchRequest(), metadata=metadata)  # type: ignore[no-untyped-call]
        yield stream
        stream.cancel()


def refusal(port: int, trusted: Mapping[str, str], bearer: str | None) -> tuple[str, str]:
    """Return the status and the sentence with which a call ends; empty: it gets a message."""
    with call(port, trusted, bearer) as stream:
        try:
            next(stream)
        except grpc.RpcError as error:
            return error.code().name, str(error.details())
    return "", ""


class Caller:
    """Listens to one operator until it is closed, and calls again whenever its call has ended.

    Args:
        port: returns the operator's port on this machine; 0: it does not serve yet.
        trusted: returns the certificates of this moment.
        bearer: the token.
    """

    def __init__(self, port: Callable[[], int], trusted: Callable[[], Mapping[str, str]], bearer: str) -> None:
        self._port, self._trusted, self._bearer = port, trusted, bearer
        self.pods: dict[str, Pod] | None = None
        """ The pods of the node by name, as last received; None: the operator does not answer. """
        self.messages = 0
        self.ends: list[str] = []
        """ The status with which each call ended. """
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._closed.set()
        self._thread.join(30)

    def _listen(self) -> None:
        while not self._closed.is_set():
            try:
                port, trusted = self._port(), self._trusted()
                if not port or not trusted:
                    continue
                with call(port, trusted, self._bearer) as stream:
                    threading.Thread(target=self._cancel_later, args=(stream,), daemon=True).start()
                    for message in stream:
                        self.messages += 1
                        self.pods = {pod.name: pod for pod in message.pods}
            except grpc.RpcError as error:
                self.ends.append(error.code().name)
            except client.ApiException:
                pass
            finally:
                self.pods = None
                self._closed.wait(0.05)

    def _cancel_later(self, stream: Any) -> None:
        self._closed.wait()
        stream.cancel()
