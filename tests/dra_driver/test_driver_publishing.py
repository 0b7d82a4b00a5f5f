"""How the driver keeps its slice, with a scripted API server where the real one cannot be made to do it."""

from collections.abc import Mapping
from typing import Any

import pytest

from orion.dra_driver.metrics import Metrics
from orion.dra_driver.publishing import Publishing, _Dropped
from orion.injection.current import CurrentSnapshot
from orion.injection.snapshot import AdvertisedGPU, Snapshot

NODE = "node-1"


class ScriptedServer:
    """Stores slices, and lets a watch see them at once; drops the fields that a test names."""

    def __init__(self) -> None:
        self.publishing: Any = None
        self.dropped = ""
        self.writes: list[str] = []

    @property
    def stored(self) -> dict[str, Any]:
        found: dict[str, Any] = self.publishing._stored._objects.setdefault("", {})
        return found

    async def get(self, path: str) -> dict[str, Any]:
        return {"metadata": {"uid": "uid-of-the-node"}}

    async def post(self, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        return self._store("post", body)

    async def put(self, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        return self._store("put", body)

    async def delete(self, path: str, as_seen: Mapping[str, Any]) -> None:
        self.writes.append("delete")
        self.stored.pop(path.rpartition("/")[2], None)

    def _store(self, verb: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        self.writes.append(verb)
        devices = [{key: each[key] for key in each if key != self.dropped} for each in body["spec"]["devices"]]
        metadata = {**body["metadata"], "uid": "u", "resourceVersion": "1"}
        self.stored[body["metadata"]["name"]] = {
            **body,
            "metadata": metadata,
            "spec": {**body["spec"], "devices": devices},
        }
        return dict(self.stored[body["metadata"]["name"]])


@pytest.fixture
async def server() -> ScriptedServer:
    made, current = ScriptedServer(), CurrentSnapshot()
    current.take(Snapshot({"GPU-A": AdvertisedGPU("GPU-A", memory_bytes=80 << 30)}))
    made.publishing = Publishing(made, NODE, current, 0, lambda: True, Metrics())  # type: ignore[arg-type]
    return made


async def test_foreign_slices_are_removed_while_the_watch_goes_on(server: ScriptedServer) -> None:
    await server.publishing._write()
    (own,) = server.stored.values()
    for name in ("forged", "doubled"):
        server.stored[name] = {**own, "metadata": {**own["metadata"], "name": name}}
    await server.publishing._write()
    assert list(server.stored) == [own["metadata"]["name"]]
    assert server.writes == ["post", "delete", "delete"]


@pytest.mark.parametrize("field", ["allowMultipleAllocations", "capacity"])
async def test_a_slice_whose_fields_the_api_server_drops_is_withdrawn(server: ScriptedServer, field: str) -> None:
    server.dropped = field
    with pytest.raises(_Dropped, match=r"no GPU is offered to claims: it needs Kubernetes 1\.36 or later"):
        await server.publishing._write()
    assert server.stored == {}


async def test_a_slice_of_another_pool_is_replaced(server: ScriptedServer) -> None:
    await server.publishing._write()
    (own,) = server.stored.values()
    own["spec"]["pool"] = {**own["spec"]["pool"], "name": "another"}
    await server.publishing._write()
    assert server.writes == ["post", "delete", "post"]
