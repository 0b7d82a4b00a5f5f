"""After a cleanup, no object holds data of Orion, and everything that people wrote is unchanged."""

import asyncio
import copy
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orion.api_server.requests import ApiError, ApiServer
from orion.cli.cleanup import _lines
from orion.cli.main import main
from orion.crds.annotations import ALLOCATION
from orion.crds.claims import TEMPLATES
from orion.crds.conditions import ConditionType
from orion.crds.device_status import GPUDeviceStatus
from orion.crds.share_status import GPUShareStatus
from orion.operator.cleanup import remains
from orion.operator.cleanup.cleaning import Cleaned, Cleaning
from orion.operator.reconciler.records import NODE_LABELS, Named
from tests.crds.merge import patched
from tests.operator.fake_cluster import NOW

Body = dict[str, Any]

NAMES = st.sampled_from(["a", "b", "c", "d"])
MARKS = st.dictionaries(
    st.sampled_from([*NODE_LABELS, ALLOCATION, "orion.gpu/of-an-older-release", "orion/enabled", "kubernetes.io/os"]),
    st.sampled_from(["1", "x"]),
)
AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "orion.gpu/hp", "orion.gpu/be"]), st.sampled_from(["0", "0", "4"]))
CONDITIONS = st.lists(
    st.fixed_dictionaries({
        "type": st.sampled_from([*ConditionType, "OfALaterRelease"]),
        "status": st.sampled_from(["True", "False", "Unknown"]),
        "reason": st.sampled_from(["Advertised", "Granted"]),
        "message": st.just("an earlier message"),
        "lastTransitionTime": st.just("2025-01-01T00:00:00Z"),
    }),
    unique_by=lambda each: each["type"],
)  # fmt: skip
SPECS = st.dictionaries(st.sampled_from(["cordon", "mode", "priority"]), st.sampled_from([True, "mps", "hp"]))
DEVICE_STATUS = {
    "node": st.just("node"),
    "health": st.sampled_from(["Healthy", "Unhealthy", "Unknown"]),
    "clientCount": st.integers(0, 3),
    "heldSlots": st.just([{"name": "be-0", "priority": "be"}]),
    "memory": st.just({"total": "80Gi", "used": "60Gi", "reserved": "8Gi", "returnable": "1Gi"}),
    "conditions": CONDITIONS,
    "ofALaterRelease": st.just("kept"),
}
SHARE_STATUS = {
    "observedGeneration": st.integers(0, 3),
    "pods": st.just({"governed": 1}),
    "clientCounts": st.just({"total": 1}),
    "slots": st.just([{"slot": "be-0", "usage": {"due": 0.5, "charged": 0.5, "measured": 0.5, "waited": 0}}]),
    "conditions": CONDITIONS,
}
TOTAL = {"total": "80Gi"}
KEPT_FIELDS = {"node", "observedGeneration", "ofALaterRelease"}
""" Fields of a status that the cleanup keeps. """


def objects(status: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Body]:
    """Return a strategy for objects with a spec, and with some of these fields in their status, or without a status."""
    return st.fixed_dictionaries(
        {
            "metadata": st.fixed_dictionaries(
                {"name": NAMES, "namespace": st.just("n"), "generation": st.integers(0, 3)}
            )
        },
        optional={"spec": SPECS, "status": st.fixed_dictionaries({}, optional=cast("Any", status))},
    )


NODES = st.fixed_dictionaries({
    "metadata": st.fixed_dictionaries({"name": NAMES}, optional={"labels": MARKS, "annotations": MARKS}),
    "status": st.fixed_dictionaries({}, optional={"capacity": AMOUNTS, "allocatable": AMOUNTS}),
})  # fmt: skip


@given(NODES)
def test_a_node_loses_only_the_labels_of_orion(node: Body) -> None:
    after = patched(copy.deepcopy(node), remains.node_patch(node) or {})
    before = node["metadata"].get("labels", {})
    kept = {k: v for k, v in before.items() if k == ALLOCATION or not k.startswith("orion.gpu/")}
    assert after["metadata"].get("labels", {}) == kept
    assert after["metadata"].get("annotations") == node["metadata"].get("annotations")
    assert after["status"] == node["status"]
    assert remains.node_patch(after) is None


@given(NODES)
def test_resources_are_removed_only_if_all_are_zero(node: Body) -> None:
    patch = remains.capacity_patch(node)
    after = patched(copy.deepcopy(node), patch or {})["status"]
    for field, amounts in node["status"].items():
        for name, amount in amounts.items():
            ours = name.startswith("orion.gpu/")
            assert after.get(field, {}).get(name) == (None if ours and patch else amount)
            assert not (ours and patch and amount != "0")
    assert remains.capacity_patch({**node, "status": after}) is None or patch is None


@given(objects(DEVICE_STATUS))
def test_a_gpu_becomes_unknown_and_keeps_its_spec(device: Body) -> None:
    after = patched(copy.deepcopy(device), remains.device_patch(device, NOW) or {})
    assert_unknown(device, after)
    if device.get("status"):
        assert after["status"]["health"] == "Unknown"
        assert GPUDeviceStatus.read(after["status"]).client_count is None
        assert after["status"].get("memory", TOTAL) == TOTAL
    assert remains.device_patch(after, NOW) is None


@given(objects(SHARE_STATUS))
def test_a_share_becomes_unknown_and_keeps_its_spec(share: Body) -> None:
    after = patched(copy.deepcopy(share), remains.share_patch(share, NOW) or {})
    assert_unknown(share, after)
    if share.get("status"):
        assert GPUShareStatus.read(after["status"]).pods is None
    assert remains.share_patch(after, NOW) is None


def assert_unknown(before: Body, after: Body) -> None:
    """Assert that an object holds no data of Orion and has lost nothing else."""
    assert (after.get("spec"), after["metadata"]) == (before.get("spec"), before["metadata"])
    status = before.get("status")
    if not status:
        assert after.get("status") == status  # the status was empty
        return
    conditions = {each["type"]: (each["status"], each["reason"]) for each in after["status"]["conditions"]}
    assert set(conditions.values()) == {("Unknown", "Uninstalled")}
    assert conditions.keys() == {"Ready"} | {e["type"] for e in status.get("conditions", ())} - {"OfALaterRelease"}
    kept = {field: value for field, value in status.items() if field in KEPT_FIELDS}
    assert {field: after["status"][field] for field in kept} == kept
    assert after["status"].keys() <= kept.keys() | {"health", "conditions", "memory"}


# -- All of a cluster --------------------------------------------------------------------------------------------------


class FakeServer:
    """An API server that returns each list in two pages, answers given paths with errors, and records all writes."""

    def __init__(self, lists: dict[str, list[Body]], refuses: dict[str, int]) -> None:
        self._lists, self._refuses = lists, refuses
        self.asked: list[tuple[str, str]] = []

    async def pages(self, path: str, accept: str, **_: str) -> Any:
        self._refuse(path)
        found = self._lists.get(path, [])
        for page in (found[:1], found[1:]):
            yield {"items": page, "metadata": {}}

    async def get(self, path: str) -> Body:
        self._refuse(path)
        return {}

    async def patch(self, path: str, patch: Body) -> None:
        self._refuse(path)
        self.asked.append(("PATCH", path))

    async def delete(self, path: str) -> None:
        self._refuse(path)
        self.asked.append(("DELETE", path))

    def _refuse(self, path: str) -> None:
        if status := self._refuses.get(path):
            raise ApiError(status, f"{path} is refused")


def labelled(name: str) -> Body:
    return {
        "metadata": {"name": name, "labels": {"orion.gpu/gpus": "2"}},
        "status": {"capacity": {"orion.gpu/hp": "0"}},
    }


GPUS = "/apis/orion.gpu/v1alpha1/gpudevices"
SHARES = "/apis/orion.gpu/v1alpha1/gpushares"
LISTS: dict[str, list[Body]] = {
    "/api/v1/nodes": [labelled("one"), {"metadata": {"name": "never"}}, labelled("two")],
    GPUS: [{"metadata": {"name": "gpu"}, "status": {"health": "Healthy"}}, {"metadata": {"name": "new"}, "spec": {}}],
    SHARES: [{"metadata": {"name": "s", "namespace": "n"}, "status": {"pods": {}}}],
}
OF_ALL = Cleaned({"one": ["orion.gpu/gpus"], "two": ["orion.gpu/gpus"]}, ["gpu"], ["n/s"])


def clean(server: FakeServer, **options: Any) -> Cleaned:
    return asyncio.run(Cleaning(cast("ApiServer", server), NOW, **options).run())


def test_every_object_with_data_of_orion_is_patched_once() -> None:
    server = FakeServer(LISTS, {})
    assert clean(server) == OF_ALL
    share = "/apis/orion.gpu/v1alpha1/namespaces/n/gpushares/s/status"
    paths = ["/api/v1/nodes/one", "/api/v1/nodes/two", f"{GPUS}/gpu/status", share]
    assert server.asked == [("PATCH", path) for path in paths]


def test_a_dry_run_writes_nothing() -> None:
    server = FakeServer(LISTS, {"/api/v1/namespaces/n/pods/t": 404})
    cleaned = clean(server, dry_run=True, test=Named("n", "t"))
    assert cleaned == replace(OF_ALL, deleted=["gpushares/t"])
    assert server.asked == []
    lines = _lines(cleaned, dry_run=True)
    assert "gpushares/t: to be deleted" in lines
    assert lines[-1].startswith("to be cleaned: 2 nodes")


def test_capacity_is_changed_only_on_request() -> None:
    server = FakeServer(LISTS, {})
    assert clean(server, capacity=True).nodes["one"] == ["orion.gpu/gpus", "orion.gpu/hp"]
    assert ("PATCH", "/api/v1/nodes/one/status") in server.asked


def test_objects_of_a_helm_test_are_deleted_if_they_exist() -> None:
    pod, share = "/api/v1/namespaces/n/pods/t", "/apis/orion.gpu/v1alpha1/namespaces/n/gpushares/t"
    server = FakeServer({}, {share: 404})
    assert clean(server, test=Named("n", "t")).deleted == ["pods/t"]
    assert server.asked == [("DELETE", pod)]


def test_templates_of_claims_are_deleted_and_need_not_be_known() -> None:
    template = {"metadata": {"namespace": "n", "name": "orion-be-0"}}
    server = FakeServer({TEMPLATES: [template]}, {})
    assert clean(server).deleted == ["resourceclaimtemplates/orion-be-0"]
    assert server.asked == [("DELETE", "/apis/resource.k8s.io/v1/namespaces/n/resourceclaimtemplates/orion-be-0")]
    assert clean(FakeServer({}, {TEMPLATES: 404})).failed == []


def test_missing_definitions_and_objects_count_as_clean() -> None:
    cleaned = clean(FakeServer(LISTS, {GPUS: 404, SHARES: 404, "/api/v1/nodes/one": 404}))
    assert cleaned == Cleaned(nodes={"two": ["orion.gpu/gpus"]})


def test_an_empty_cluster_is_clean() -> None:
    assert clean(FakeServer({}, {}), capacity=True) == Cleaned()


def test_after_a_failed_write_the_other_objects_are_cleaned() -> None:
    cleaned = clean(FakeServer(LISTS, {"/api/v1/nodes/one": 403, GPUS: 403}))
    assert (set(cleaned.nodes), cleaned.shares) == ({"two"}, ["n/s"])
    assert cleaned.failed == ["403: /api/v1/nodes/one is refused", f"403: {GPUS} is refused"]


@pytest.mark.parametrize("test", ["pod", "/pod", "namespace/"])
def test_the_option_test_must_be_a_namespace_and_a_name(test: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cleanup", "--test", test]) == 2
    assert f"--test must be NAMESPACE/NAME, not {test!r}" in capsys.readouterr().err
