"""The gRPC server of one resource, on its own socket in the kubelet's folder; a deleted socket is made again."""

import contextlib
import logging
import os
from collections.abc import Callable

import grpc.aio

from orion.device_plugin.answering import DevicePluginService
from orion.device_plugin.kubelet import api_pb2_grpc
from orion.device_plugin.kubelet_folder import Identity, KubeletFolder, Look, identity
from orion.device_plugin.slots import Resource

_log = logging.getLogger(__name__)


class Endpoint:
    """Serves one resource.

    Args:
        resource: which this endpoint serves.
        folder: the kubelet's.
        make_service: makes a service. Each socket gets its own, so that ending a service ends that socket's streams.
    """

    def __init__(
        self, resource: Resource, folder: KubeletFolder, make_service: Callable[[], DevicePluginService]
    ) -> None:
        self.resource = resource
        self._folder, self._make_service = folder, make_service
        self._server: grpc.aio.Server | None = None
        self.service = make_service()
        self.path = folder.path / "none"
        self._identity: Identity | None = None

    async def serve(self) -> None:
        """Serve on a new socket, with no stream open.

        The old socket is removed once the new one exists, so other plugins always see one. The old socket's streams end
        before the next registration: kubelets up to 1.34 take the end of any stream of a resource for the end of the
        newest one.

        Raises:
            OSError: the socket cannot be made.
        """
        service, path = self._make_service(), self._folder.fresh_socket(self.resource)
        server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        api_pb2_grpc.add_DevicePluginServicer_to_server(service, server)  # type: ignore[no-untyped-call]
        before = os.umask(0o177)
        try:
            server.add_insecure_port(f"unix:{path}")
        except RuntimeError as error:
            raise OSError(f"cannot listen on {path}: {error}") from None
        finally:
            os.umask(before)
        await server.start()
        await self.stop()
        self._server, self.service, self.path, self._identity = server, service, path, identity(path)

    def is_there(self, look: Look) -> bool:
        """Return whether this endpoint's own socket existed at that moment."""
        return look.own is not None and look.own == self._identity

    async def stop(self) -> None:
        """Stop serving.

        The socket is removed before the streams end. Another plugin that registers again when its stream ends then
        knows that this one is gone.
        """
        if self._server is None:
            return
        server, self._server = self._server, None
        with contextlib.suppress(OSError):
            self.path.unlink()
        self.service.end_streams()
        await server.stop(grace=0.2)
