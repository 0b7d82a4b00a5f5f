"""A stand-in for the API server with claims alone, so that tests can make it answer as they like.

tests/cluster and tests/node have a real one, with slices.
"""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

DEVICES = "/apis/resource.k8s.io/v1/namespaces/n/resourceclaims/"


def claim(uid: str, *results: dict[str, Any], role: str = "be", pods: tuple[str, ...] = ("pod",)) -> dict[str, Any]:
    """An allocated claim, named after its uid."""
    given = {"opaque": {"driver": "orion.gpu", "parameters": {"role": role}}}
    reserved = [{"resource": "pods", "name": pod, "uid": f"uid-{pod}"} for pod in pods]
    return {
        "metadata": {"namespace": "n", "name": f"claim-{uid}", "uid": uid},
        "status": {
            "allocation": {"devices": {"results": list(results), "config": [{"source": "FromClass", **given}]}},
            "reservedFor": reserved,
        },
    }


def result(gpu: str, role: str = "be", request: str = "c0", share: str = "", **fields: Any) -> dict[str, Any]:
    """What the scheduler allocates for one GPU of a request."""
    slots = {"hpSlots": "0", "beSlots": "0", f"{role}Slots": "1"}
    return {
        "request": request,
        "driver": "orion.gpu",
        "pool": "node-1",
        "device": gpu.lower(),
        "consumedCapacity": {"time": "0", "memory": "0", **slots, **fields.pop("consumed", {})},
        **({"shareID": share} if share else {}),
        **fields,
    }


class StandInApiServer:
    """The API server.

    Args:
        folder: for the kubeconfig.
    """

    def __init__(self, folder: Path) -> None:
        self.claims: dict[str, dict[str, Any]] = {}
        self.status = 0
        """ Every request gets this answer; 0: requests are answered. """
        self.reads = 0
        """ How often somebody has asked for a claim. """
        handler = type("Handler", (_Handler,), {"stand_in": self})
        self._http = _Server(("127.0.0.1", 0), handler)
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        self.kubeconfig = folder / "kubeconfig"
        named = {"name": "it", "cluster": {"server": self.url}, "user": {"token": "x"}}
        context = {"name": "it", "context": {"cluster": "it", "user": "it"}}
        config = {"current-context": "it", "clusters": [named], "users": [named], "contexts": [context]}
        self.kubeconfig.write_text(json.dumps(config))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def put(self, *claims: dict[str, Any]) -> None:
        """Store claims."""
        self.claims |= {each["metadata"]["name"]: each for each in claims}

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()


class _Server(ThreadingHTTPServer):
    request_queue_size = 128  # by default 5: further connections of one moment wait a second


class _Handler(BaseHTTPRequestHandler):
    stand_in: StandInApiServer

    def do_GET(self) -> None:
        found = self.stand_in.claims.get(self.path.removeprefix(DEVICES))
        status = self.stand_in.status or (404 if found is None else 200)
        self.stand_in.reads += self.path.startswith(DEVICES)
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(found if status == 200 else {"message": self._why(status)}).encode())

    def _why(self, status: int) -> str:
        return f'resourceclaims "{self.path.rpartition("/")[2]}" not found' if status == 404 else "it says no"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Log nothing."""
