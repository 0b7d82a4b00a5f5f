"""The operator may replace a pod of the MPS daemons only if no container of the pod has ever started."""

from typing import Any

import pytest

from orion.operator.reconciler.mps_daemons import never_started

WAITING = {"state": {"waiting": {"reason": "ImagePullBackOff"}}, "lastState": {}, "restartCount": 0}


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        (None, True),
        ([WAITING], True),
        ([{**WAITING, "state": {"running": {}}}], False),
        ([{**WAITING, "state": {"terminated": {}}}], False),
        ([{**WAITING, "lastState": {"terminated": {}}}], False),
        ([{**WAITING, "restartCount": 1}], False),
        ([WAITING, {**WAITING, "state": {"running": {}}}], False),
    ],
)
def test_a_pod_has_started_if_one_of_its_containers_ever_has(
    statuses: list[dict[str, Any]] | None, expected: bool
) -> None:
    assert never_started({"metadata": {}, "status": {"containerStatuses": statuses}}) is expected


def test_a_pod_that_is_being_deleted_is_left_alone() -> None:
    assert not never_started({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {}})
