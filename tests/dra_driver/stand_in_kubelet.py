"""A stand-in for the kubelet's plugin manager and DRA manager, over the real protocol.

It finds drivers by their registration sockets as the kubelet does, and calls the one that registered last. The tests of
the node tier have a real kubelet.
"""

import contextlib
from pathlib import Path
from typing import Any

import grpc

from orion.dra_driver.kubelet.claims import api_pb2, api_pb2_grpc
from orion.dra_driver.kubelet.health.v1 import api_pb2 as health_pb2
from orion.dra_driver.kubelet.health.v1 import api_pb2_grpc as health_grpc
from orion.dra_driver.kubelet.health.v1alpha1 import api_pb2 as health_1_36_pb2
from orion.dra_driver.kubelet.health.v1alpha1 import api_pb2_grpc as health_1_36_grpc
from orion.dra_driver.kubelet.registration import api_pb2 as registration_pb2
from orion.dra_driver.kubelet.registration import api_pb2_grpc as registration_grpc

CALL_SECONDS = 45.0
HEALTH: dict[str, tuple[Any, Any]] = {
    "v1.DRAResourceHealth": (health_pb2, health_grpc),
    "v1alpha1.DRAResourceHealth": (health_1_36_pb2, health_1_36_grpc),
}
""" Messages and stub of each version of the health stream; the kubelet of Kubernetes 1.36 knows only the second. """


class Failed(Exception):
    """The driver answered with an error."""


class Refused(Exception):
    """The kubelet does not accept a driver."""


class StandInKubelet:
    """The kubelet of a node.

    Args:
        folder: its root directory.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.registry = folder, folder / "plugins_registry"
        self.endpoint = ""
        """ The socket of the driver that registered last. """
        self.refuses = ""
        """ Why drivers are refused; empty: they are accepted. The kubelet looks again for a driver that it refused. """
        self.refused = 0
        self.health_versions = ("v1.DRAResourceHealth",)
        """ The health streams that this kubelet knows. """
        self._health = ""
        self._known: dict[Path, str] = {}
        self.registry.mkdir(parents=True)

    def look(self) -> str:
        """Look for drivers once; return the socket of the driver to call; empty: there is none."""
        found = sorted(self.registry.glob("*.sock"), key=_made)
        self._known = {path: each for path, each in self._known.items() if path in found}
        for path in found:
            if path not in self._known:
                with contextlib.suppress(grpc.RpcError, Refused):
                    self._known[path] = self._register(path)
        self.endpoint = [*self._known.values(), ""][0] if len(self._known) < 2 else [*self._known.values()][-1]
        return self.endpoint

    def _register(self, path: Path) -> str:
        with grpc.insecure_channel(f"unix:{path}") as channel:
            stub = registration_grpc.RegistrationStub(channel)  # type: ignore[no-untyped-call]
            info = stub.GetInfo(registration_pb2.InfoRequest(), timeout=5)
            assert (info.type, info.name) == ("DRAPlugin", "orion.gpu")
            assert "v1.DRAPlugin" in info.supported_versions
            self._health = next(each for each in self.health_versions if each in info.supported_versions)
            status = registration_pb2.RegistrationStatus(plugin_registered=not self.refuses, error=self.refuses)
            stub.NotifyRegistrationStatus(status, timeout=5)
            if self.refuses:
                self.refused += 1
                raise Refused
            return str(info.endpoint)

    def prepare(self, *uids: str, seconds: float = CALL_SECONDS) -> dict[str, Any]:
        """Prepare claims named after their uids; return the driver's answers by uid."""
        claims = [api_pb2.Claim(namespace="n", name=f"claim-{uid}", uid=uid) for uid in uids]
        with grpc.insecure_channel(f"unix:{self.endpoint}") as channel:
            stub = api_pb2_grpc.DRAPluginStub(channel)  # type: ignore[no-untyped-call]
            answer = stub.NodePrepareResources(
                api_pb2.NodePrepareResourcesRequest(claims=claims), timeout=seconds, wait_for_ready=True
            )
        return dict(answer.claims)

    def prepared(self, uid: str, seconds: float = CALL_SECONDS) -> list[Any]:
        """Prepare a claim; return its devices.

        Raises:
            Failed: the driver answered with an error.
        """
        answer = self.prepare(uid, seconds=seconds)[uid]
        if answer.error:
            raise Failed(answer.error)
        return list(answer.devices)

    def unprepare(self, *uids: str) -> None:
        """Unprepare claims.

        Raises:
            Failed: the driver answered with an error.
        """
        claims = [api_pb2.Claim(namespace="n", name=f"claim-{uid}", uid=uid) for uid in uids]
        with grpc.insecure_channel(f"unix:{self.endpoint}") as channel:
            stub = api_pb2_grpc.DRAPluginStub(channel)  # type: ignore[no-untyped-call]
            answer = stub.NodeUnprepareResources(
                api_pb2.NodeUnprepareResourcesRequest(claims=claims), timeout=CALL_SECONDS, wait_for_ready=True
            )
        assert set(answer.claims) == set(uids)
        for each in answer.claims.values():
            if each.error:
                raise Failed(each.error)

    def health(self) -> dict[str, tuple[bool, str]]:
        """Return the first health that the driver sends, by device, on the stream that both know."""
        messages, services = HEALTH[self._health]
        with grpc.insecure_channel(f"unix:{self.endpoint}") as channel:
            stub = services.DRAResourceHealthStub(channel)
            message = next(stub.NodeWatchResources(messages.NodeWatchResourcesRequest(), timeout=CALL_SECONDS))
        return {each.device.device_name: (each.health == messages.HEALTHY, each.message) for each in message.devices}


def _made(path: Path) -> int:
    """Return when a socket was made; 0: a driver that starts has just removed that of a killed one."""
    with contextlib.suppress(FileNotFoundError):
        return path.lstat().st_mtime_ns
    return 0
