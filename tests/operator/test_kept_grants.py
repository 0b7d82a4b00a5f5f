"""How many grants the operator keeps: jobs come and go, and each may name its containers in its own way."""

from types import SimpleNamespace
from typing import Any

from orion.operator.reconciler import grants
from orion.operator.reconciler.governance import How
from orion.operator.reconciler.grants import desired_grant
from orion.operator.reconciler.records import PodRecord, pod_record, share_record
from tests.operator.share_objects import pod, share


def named(container: str) -> PodRecord:
    """Return the record of a pod with one container."""
    body = pod("p", uid="u")
    body["spec"]["containers"][0]["name"] = container
    return pod_record(body)


def test_grants_of_pods_that_have_gone_are_forgotten(monkeypatch: Any) -> None:
    monkeypatch.setattr(grants, "_KEPT_MAX", 10)
    body = share()
    body["metadata"] |= {"uid": "u", "generation": 1}
    record = share_record(body)
    governance: Any = SimpleNamespace(how=How.SHARE, shares=("s",))
    shares: Any = SimpleNamespace(named={"s": record})
    stays = desired_grant(named("stays"), governance, shares)
    for number in range(100):
        assert f"job-{number}" in str(desired_grant(named(f"job-{number}"), governance, shares))
        assert desired_grant(named("stays"), governance, shares) is stays, "the grant of a pod that is there is kept"
    assert len(record.grants) == 10
