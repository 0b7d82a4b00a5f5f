"""Before an uninstall: which pods still use claims of Orion, and how long the wait for them is."""

import time
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from orion.api_server.requests import ApiError, ApiServer
from orion.errors import Conflict
from orion.operator.cleanup import claims_in_use
from orion.operator.cleanup.claims_in_use import await_end, users


def claim(*pods: str, driver: str = "orion.gpu") -> dict[str, Any]:
    allocation = {"devices": {"results": [{"driver": driver, "device": "gpu-1"}]}}
    reserved = [{"resource": "pods", "name": pod, "uid": f"uid-{pod}"} for pod in pods]
    return {"metadata": {"namespace": "n", "name": "c"}, "status": {"allocation": allocation, "reservedFor": reserved}}


class Server:
    """Lists claims that become fewer with each list."""

    def __init__(self, *lists: list[dict[str, Any]], status: int = 0) -> None:
        self.lists, self.status = [*lists], status

    async def pages(self, path: str) -> AsyncIterator[dict[str, Any]]:
        assert path == "/apis/resource.k8s.io/v1/resourceclaims"
        if self.status:
            raise ApiError(self.status, "no")
        found = self.lists.pop(0) if len(self.lists) > 1 else self.lists[0]
        for each in found:
            yield {"items": [each]}


async def wait(server: Server, seconds: float = 60.0) -> None:
    await await_end(cast("ApiServer", server), seconds)


@pytest.mark.parametrize(
    ("found", "pods"),
    [
        (claim("a", "b"), ["n/a", "n/b"]),
        (claim(), []),
        (claim("a", driver="gpu.nvidia.com"), []),
        ({"metadata": {"namespace": "n", "name": "c"}}, []),
        ({"metadata": {"namespace": "n", "name": "c"}, "status": {"reservedFor": [{"name": "a"}]}}, []),
    ],
)
def test_the_users_of_a_claim_are_the_pods_it_is_reserved_for(found: dict[str, Any], pods: list[str]) -> None:
    assert list(users(found)) == pods


async def test_it_waits_until_the_last_pod_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims_in_use, "_AGAIN_SECONDS", 0.001)
    server = Server([claim("a"), claim("b")], [claim("b")], [claim()])
    await wait(server)
    assert len(server.lists) == 1


async def test_it_names_the_pods_that_are_left() -> None:
    began = time.monotonic()
    with pytest.raises(Conflict, match=r"n/a, n/b, n/c, n/d, n/e and 1 more; nothing has been removed: end these pods"):
        await wait(Server([claim(*"abcdef")]), 0.0)
    assert time.monotonic() - began < 30


async def test_an_api_server_without_claims_has_none() -> None:
    await wait(Server([], status=404))
    with pytest.raises(ApiError):
        await wait(Server([], status=403))
