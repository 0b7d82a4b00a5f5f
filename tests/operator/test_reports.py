"""What the reconciler keeps of agents' reports: all that decisions read, in little memory."""

import json
import tracemalloc
from collections.abc import Callable
from typing import Any

from orion.crds.clients import ClientRow
from orion.crds.conditions import Condition
from orion.operator.reconciler.records import device_record, pod_record, share_record
from orion.operator.reconciler.reports import client_row

UUID = "GPU-00000000-0000-4000-8000-00000000000{}"
RECORDS = 200


def device(number: int) -> dict[str, Any]:
    """Return a GPU with four clients."""
    pods = [{"namespace": "team", "name": f"pod-{number}-{each}", "uid": f"u-{number}-{each}"} for each in range(4)]
    rows = [{"name": f"be-{each}", "priority": "be", "pod": pod, "clients": 1} for each, pod in enumerate(pods)]
    figures = {"processId": 7, "command": "python", "state": "gated", "memory": "3Gi", "gatedRatio": 0.5}
    clients = [{"slot": f"be-{each}", "priority": "be", "pod": pod, **figures} for each, pod in enumerate(pods)]
    condition = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z", "reason": "Healthy"}
    status: dict[str, Any] = {
        "node": f"node-{number}",
        "uuid": UUID.format(1),
        "memory": {"total": "140Gi", "used": "12Gi"},
    }
    status |= {"slots": {"hp": {"total": 1}, "be": {"total": 8, "held": 4}}, "conditions": [condition]}
    return {
        "metadata": {"name": f"gpu-{number}", "uid": f"u-{number}"},
        "status": status | {"heldSlots": rows, "clients": clients},
    }


def kept(record: Callable[[Any], object], bodies: list[Any]) -> float:
    """Return how many bytes the record of a body takes."""
    texts = [json.dumps(each) for each in bodies]
    record(json.loads(texts[0]))  # makes what all of them share
    tracemalloc.start()
    try:
        found = [record(json.loads(text)) for text in texts[1:]]
        return tracemalloc.get_traced_memory()[0] / len(found)
    finally:
        tracemalloc.stop()


def test_a_client_is_repeated_with_its_node_and_gpu() -> None:
    body = device(1)
    record = device_record(body)
    rows = [client_row(row, record.status.node, record.status.uuid) for row in record.status.clients or ()]
    place = {"node": "node-1", "gpu": UUID.format(1)}
    assert rows == [ClientRow.read(row | place) for row in body["status"]["clients"]]
    assert rows[0].plain() == body["status"]["clients"][0] | place


def test_a_place_that_the_agent_reports_stays() -> None:
    body = device(1)
    place = {"node": "other", "gpu": UUID.format(2)}
    body["status"]["clients"] = [body["status"]["clients"][0] | place]
    [row] = device_record(body).status.clients or ()
    assert client_row(row, "node-1", UUID.format(1)).plain() == body["status"]["clients"][0]


def test_a_status_that_cannot_be_read_counts_as_empty() -> None:
    record = device_record({"metadata": {"name": "gpu", "uid": "u"}, "status": {"node": 7}})
    assert record.status == device_record({"metadata": {"name": "gpu", "uid": "u"}}).status


def test_conditions_are_kept_whole() -> None:
    body = device(1)
    [condition] = device_record(body).status.conditions or ()
    assert Condition.model_validate(condition, from_attributes=True) == Condition.read(body["status"]["conditions"][0])


def test_records_take_little_memory() -> None:
    """With 5,000 GPUs and 20,000 pods, a kilobyte more for each is 25 MiB."""
    metas = [{"name": f"pod-{each}", "uid": f"u-{each}", "namespace": "team"} for each in range(RECORDS)]
    pods = [
        {"metadata": meta | {"labels": {"app": "web", "hash": "1"}}, "spec": {"nodeName": "node"}} for meta in metas
    ]
    assert kept(device_record, [device(each) for each in range(RECORDS)]) < 6_000
    assert kept(pod_record, pods) < 450
    clients = [device(each)["status"]["clients"] * 3 for each in range(RECORDS)]
    spec = {"priority": "be", "selector": {"matchLabels": {"app": "web"}}}
    shares = [
        {"metadata": meta, "spec": spec, "status": {"clients": rows}} for meta, rows in zip(metas, clients, strict=True)
    ]
    assert kept(share_record, shares) < 7_000
