"""After a cleanup no object says anything for Orion, and all that people wrote is as it was."""

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
from orion.crds.conditions import ConditionType
from orion.crds.device import GPUDeviceStatus
from orion.crds.share_status import GPUShareStatus
from orion.operator.cleanup import remains
from orion.operator.cleanup.cleaning import Cleaned, Cleaning
from orion.operator.reconciler.records import NODE_LABELS, Named
from tests.crds.merge import patched
from tests.operator.fake_cluster import NOW

Body = dict[str, Any]

NAMES = st.sampled_from(["a", "b", "c", "d"])
MARKS = st.dictionaries(
    st.sampled_from([*NODE_LABELS, "orion.gpu/of-an-older-release", "orion/enabled", "kubernetes.io/os"]),
    st.sampled_from(["1", "x"]),
)
AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "orion.gpu/hp", "orion.gpu/be"]), st.sampled_from(["0", "0", "4"]))
CONDITIONS = st.lists(
    st.fixed_dictionaries({
        "type": st.sampled_from([*ConditionType, "OfALaterRelease"]),
        "status": st.sampled_from(["True", "False", "Unknown"]),
        "reason": st.sampled_from(["Advertised", "Granted"]),
        "message": st.just("said before"),
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
    "conditions": CONDITIONS,
    "ofALaterRelease": st.just("kept"),
}
SHARE_STATUS = {
    "observedGeneration": st.integers(0, 3),
    "pods": st.just({"governed": 1}),
    "clientCounts": st.just({"total": 1}),
    "conditions": CONDITIONS,
}
STATUS_OF_PEOPLE = {"node", "observedGeneration", "ofALaterRelease"}
""" Fields of a status that stay: who the object is, not how it does. """


def objects(status: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Body]:
    """Objects with a spec of people's, and some of these fields in their status, or no status."""
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
def test_a_node_loses_our_marks_and_nothing_else(node: Body) -> None:
    after = patched(copy.deepcopy(node), remains.node_patch(node) or {})
    before = node["metadata"].get("labels", {})
    assert after["metadata"].get("labels", {}) == {k: v for k, v in before.items() if not k.startswith("orion.gpu/")}
    assert after["metadata"].get("annotations") == node["metadata"].get("annotations")
    assert after["status"] == node["status"]
    assert remains.node_patch(after) is None


@given(NODES)
def test_resources_go_only_from_a_node_that_has_none_left(node: Body) -> None:
    patch = remains.capacity_patch(node)
    after = patched(copy.deepcopy(node), patch or {})["status"]
    for field, amounts in node["status"].items():
        for name, amount in amounts.items():
            ours = name.startswith("orion.gpu/")
            assert after.get(field, {}).get(name) == (None if ours and patch else amount)
            assert not (ours and patch and amount != "0")
    assert remains.capacity_patch({**node, "status": after}) is None or patch is None


@given(objects(DEVICE_STATUS))
def test_a_gpu_says_that_nothing_is_known_and_keeps_what_people_wrote(device: Body) -> None:
    after = patched(copy.deepcopy(device), remains.device_patch(device, NOW) or {})
    assert_unknown(device, after)
    if device.get("status"):
        assert after["status"]["health"] == "Unknown"
        assert GPUDeviceStatus.read(after["status"]).client_count is None
    assert remains.device_patch(after, NOW) is None


@given(objects(SHARE_STATUS))
def test_a_share_says_that_nothing_is_known_and_keeps_what_people_wrote(share: Body) -> None:
    after = patched(copy.deepcopy(share), remains.share_patch(share, NOW) or {})
    assert_unknown(share, after)
    if share.get("status"):
        assert GPUShareStatus.read(after["status"]).pods is None
    assert remains.share_patch(after, NOW) is None


def assert_unknown(before: Body, after: Body) -> None:
    """Fail where an object still claims something, or lost what was not Orion's to take."""
    assert (after.get("spec"), after["metadata"]) == (before.get("spec"), before["metadata"])
    status = before.get("status")
    if not status:
        assert after.get("status") == status  # nobody has said anything
        return
    conditions = {each["type"]: (each["status"], each["reason"]) for each in after["status"]["conditions"]}
    assert set(conditions.values()) == {("Unknown", "Uninstalled")}
    assert conditions.keys() == {"Ready"} | {e["type"] for e in status.get("conditions", ())} - {"OfALaterRelease"}
    kept = {field: value for field, value in status.items() if field in STATUS_OF_PEOPLE}
    assert {field: after["status"][field] for field in kept} == kept
    assert after["status"].keys() <= kept.keys() | {"health", "conditions"}


# -- All of a cluster --------------------------------------------------------------------------------------------------


class FakeServer:
    """Lists by path, each in two pages; refuses what it is told to refuse, and writes down the rest."""

    def __init__(self, lists: dict[str, list[Body]], refuses: dict[str, int]) -> None:
        self._lists, self._refuses = lists, refuses
        self.asked: list[tuple[str, str]] = []

    async def pages(self, path: str, accept: str) -> Any:
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


def test_all_that_says_anything_is_written_once() -> None:
    server = FakeServer(LISTS, {})
    assert clean(server) == OF_ALL
    share = "/apis/orion.gpu/v1alpha1/namespaces/n/gpushares/s/status"
    paths = ["/api/v1/nodes/one", "/api/v1/nodes/two", f"{GPUS}/gpu/status", share]
    assert server.asked == [("PATCH", path) for path in paths]


def test_a_look_writes_nothing() -> None:
    server = FakeServer(LISTS, {"/api/v1/namespaces/n/pods/t": 404})
    cleaned = clean(server, dry_run=True, test=Named("n", "t"))
    assert cleaned == replace(OF_ALL, deleted=["gpushares/t"])
    assert server.asked == []
    lines = _lines(cleaned, dry_run=True)
    assert "gpushares/t: to be deleted" in lines
    assert lines[-1].startswith("to be cleaned: 2 nodes")


def test_capacity_is_touched_only_where_asked() -> None:
    server = FakeServer(LISTS, {})
    assert clean(server, capacity=True).nodes["one"] == ["orion.gpu/gpus", "orion.gpu/hp"]
    assert ("PATCH", "/api/v1/nodes/one/status") in server.asked


def test_what_a_test_has_left_is_deleted_and_need_not_be_there() -> None:
    pod, share = "/api/v1/namespaces/n/pods/t", "/apis/orion.gpu/v1alpha1/namespaces/n/gpushares/t"
    server = FakeServer({}, {share: 404})
    assert clean(server, test=Named("n", "t")).deleted == ["pods/t"]
    assert server.asked == [("DELETE", pod)]


def test_definitions_and_objects_that_are_gone_are_clean() -> None:
    cleaned = clean(FakeServer(LISTS, {GPUS: 404, SHARES: 404, "/api/v1/nodes/one": 404}))
    assert cleaned == Cleaned(nodes={"two": ["orion.gpu/gpus"]})


def test_a_cluster_without_anything_is_clean() -> None:
    assert clean(FakeServer({}, {}), capacity=True) == Cleaned()


def test_one_refusal_keeps_nothing_else_from_being_clean() -> None:
    cleaned = clean(FakeServer(LISTS, {"/api/v1/nodes/one": 403, GPUS: 403}))
    assert (set(cleaned.nodes), cleaned.shares) == ({"two"}, ["n/s"])
    assert cleaned.failed == ["403: /api/v1/nodes/one is refused", f"403: {GPUS} is refused"]


@pytest.mark.parametrize("test", ["pod", "/pod", "namespace/"])
def test_a_test_that_is_no_namespace_and_name_is_refused(test: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cleanup", "--test", test]) == 2
    assert f"--test must be NAMESPACE/NAME, not {test!r}" in capsys.readouterr().err
