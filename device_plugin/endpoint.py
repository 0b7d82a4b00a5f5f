"""The gRPC server of one resource, on its own socket in the kubelet's folder; a deleted socket is made again."""

import contextlib
import logging
from collections.abc import Callable

import grpc.aio

from orion.device_plugin.answering import DevicePluginService
from orion.device_plugin.kubelet import api_pb2_grpc
from orion.device_plugin.kubelet_folder import FolderState, KubeletFolder
from orion.injection.slots import Resource
from orion.injection.unix_sockets import Identity, identity, listen

_log = logging.getLogger(__name__)


class Endpoint:
    """Serves one resource.

    Args:
        resource: the resource that this endpoint serves.
        folder: the kubelet's folder of sockets.
        make_service: makes a service. Each socket gets a new service, so that ending it ends that socket's streams.
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

        The old socket is removed once the new socket exists, so other plugins always see a socket of this plugin. The
        old socket's streams end before the next registration: when any stream of a resource ends, kubelets up to 1.34
        disconnect the newest endpoint of the resource.

        Raises:
            OSError: the socket cannot be made.
        """
        service, path = self._make_service(), self._folder.fresh_socket(self.resource)
        server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        api_pb2_grpc.add_DevicePluginServicer_to_server(service, server)  # type: ignore[no-untyped-call]
        await listen(server, path)
        await self.stop()
        self._server, self.service, self.path, self._identity = server, service, path, identity(path)

    def is_there(self, state: FolderState) -> bool:
        """Return whether this endpoint's own socket existed when `state` was read."""
        return state.own is not None and state.own == self._identity

    async def stop(self) -> None:
        """Stop serving.

        The socket is removed before the streams end. The end of a stream can make another plugin register again, and
        that plugin must then know that this plugin is gone.
        """
        if self._server is None:
            return
        server, self._server = self._server, None
        with contextlib.suppress(OSError):
            self.path.unlink()
        self.service.end_streams()
        await server.stop(grace=0.2)
