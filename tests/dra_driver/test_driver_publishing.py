"""How the driver keeps its slice, with a scripted API server where the real one cannot be made to do it."""

from collections.abc import Mapping
from typing import Any

import pytest

from orion.api_server.requests import ApiError
from orion.crds.allocation import Giver
from orion.crds.node_configuration import NodeSettings
from orion.dra_driver.metrics import Metrics
from orion.dra_driver.publishing import Publishing, _Withheld
from orion.injection.current import CurrentSnapshot
from orion.injection.snapshot import AdvertisedGPU, Snapshot
from orion.injection.waiting import Waiting

NODE = "node-1"


class ScriptedServer:
    """Stores slices, and lets a watch see them at once; drops the fields that a test names."""

    def __init__(self) -> None:
        self.publishing: Any = None
        self.dropped, self.runtime, self.coexist = "", "containerd://2.4.2", False
        self.writes: list[str] = []
        self.events: list[Mapping[str, Any]] = []
        self.refuses_events = False

    @property
    def stored(self) -> dict[str, Any]:
        found: dict[str, Any] = self.publishing._stored._objects.setdefault("", {})
        return found

    async def get(self, path: str) -> dict[str, Any]:
        status = {"nodeInfo": {"containerRuntimeVersion": self.runtime}}
        return {"metadata": {"name": NODE, "uid": "uid-of-the-node"}, "status": status}

    async def post(self, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        if path.endswith("/namespaces/default/events"):
            if self.refuses_events:
                raise ApiError(503, "it says no")
            self.events.append(body)
            return body
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
    api: Any = made
    settings = lambda: NodeSettings(coexist=made.coexist)  # noqa: E731
    waiting = Waiting(Giver.DRA, False, current)
    made.publishing = Publishing(api, NODE, current, waiting, 0, settings, lambda: True, Metrics())
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
    with pytest.raises(_Withheld, match=r"no GPU is offered to claims: it needs Kubernetes 1\.36 or later"):
        await server.publishing._write()
    assert server.stored == {}


async def test_metric_and_event_say_that_no_gpu_is_offered(server: ScriptedServer) -> None:
    def withheld(reason: str) -> Any:
        registry = server.publishing._metrics.registry
        return registry.get_sample_value("orion_dra_driver_withheld", {"reason": reason})

    assert withheld("RuntimeWithoutCDI") == withheld("SliceFieldsDropped") == 0
    server.runtime, server.refuses_events = "containerd://1.6.36", True
    await server.publishing._look()
    server.refuses_events = False
    for _ in range(3):
        await server.publishing._look()
    assert (withheld("RuntimeWithoutCDI"), withheld("SliceFieldsDropped")) == (1, 0)
    server.runtime, server.dropped = "containerd://2.4.2", "allowMultipleAllocations"
    await server.publishing._look()
    assert (withheld("RuntimeWithoutCDI"), withheld("SliceFieldsDropped")) == (0, 1)
    server.dropped = ""
    await server.publishing._look()
    assert withheld("RuntimeWithoutCDI") == withheld("SliceFieldsDropped") == 0
    server.runtime = "containerd://1.6.36"
    server.stored.clear()
    await server.publishing._look()
    reasons = ["RuntimeWithoutCDI", "SliceFieldsDropped", "RuntimeWithoutCDI"]
    assert [each["reason"] for each in server.events] == reasons
    assert {(each["regarding"]["kind"], each["regarding"]["name"]) for each in server.events} == {("Node", NODE)}
    assert server.events[0]["note"] == server.publishing.problem


async def test_a_slice_of_another_pool_is_replaced(server: ScriptedServer) -> None:
    await server.publishing._write()
    (own,) = server.stored.values()
    own["spec"]["pool"] = {**own["spec"]["pool"], "name": "another"}
    await server.publishing._write()
    assert server.writes == ["post", "delete", "post"]


async def test_a_node_that_chooses_has_a_slice_only_while_the_driver_gives(server: ScriptedServer) -> None:
    current = server.publishing._current
    server.publishing._waiting = Waiting(Giver.DRA, True, current)
    for giver, handover, slices in (
        ("", "", 0),  # no agent has named it yet
        ("device-plugin", "", 0),
        ("dra", "", 1),
        ("dra", "it waits for a pod", 1),  # the agent taints the GPUs as cordoned
        ("device-plugin", "", 0),
        ("device-plugin", "it waits for a pod", 0),
    ):
        current.take(Snapshot({"GPU-A": AdvertisedGPU("GPU-A", memory_bytes=80 << 30)}, {}, giver, handover))
        await server.publishing._write()
        assert len(server.stored) == slices
    assert server.writes == ["post", "delete"]


@pytest.mark.parametrize(
    ("runtime", "offers"),
    [
        ("containerd://1.6.36", False),
        ("containerd://1.7.35", True),
        ("containerd://v2.4.2", True),
        ("cri-o://1.33.0", True),
        ("", True),
    ],
)
async def test_a_runtime_without_cdi_gets_no_pods_by_claims(server: ScriptedServer, runtime: str, offers: bool) -> None:
    server.runtime = runtime
    if offers:
        await server.publishing._write()
    else:
        with pytest.raises(_Withheld, match=r"containerd://1\.6\.36, which does not know CDI"):
            await server.publishing._write()
    assert bool(server.stored) == offers


async def test_a_gpu_that_another_driver_offers_is_closed_unless_both_may(server: ScriptedServer) -> None:
    attributes = {"gpu.nvidia.com/uuid": {"string": "GPU-a"}, "type": {"string": "gpu"}, "minor": {"int": 3}}
    spec = {"driver": "gpu.nvidia.com", "devices": [{"name": "gpu-3", "attributes": attributes}]}
    server.stored["theirs"] = {"metadata": {"name": "theirs"}, "spec": spec}

    async def taints() -> list[dict[str, str]]:
        await server.publishing._write()
        (own,) = (each for name, each in server.stored.items() if name != "theirs")
        return list(own["spec"]["devices"][0].get("taints", ()))

    taint = {"key": "orion.gpu/offered-by-another", "value": "gpu.nvidia.com", "effect": "NoSchedule"}
    assert await taints() == [taint]
    server.coexist = True
    assert await taints() == []
    assert server.writes == ["post", "put"]
