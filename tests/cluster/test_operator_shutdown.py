"""The operator ends in bounded time after SIGTERM, and gives its Lease back, whatever does not stop or answer."""

import os
import signal
from pathlib import Path
from typing import ClassVar

import pytest
from kubernetes import client

from testbed.control_plane import ControlPlane
from tests.cluster import api_types
from tests.cluster.conftest import client_for
from tests.cluster.operator_process import OperatorProcess, running_operator

pytestmark = pytest.mark.cluster

NAMESPACE = "default"
LEASE = ("--lease-namespace", NAMESPACE)

# The part that keeps the webhook's certificates is replaced by one that loses its cancellation.
WITH_A_DEAF_PART = """
import asyncio, contextlib, sys
from orion.cli import main
from orion.operator.certificates import rotating

async def deaf(*_):
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)

rotating.part = lambda settings: deaf
sys.exit(main.main(["operator", "--certificates", *sys.argv[1:]]))
"""


class DeafOperator(OperatorProcess):
    program: ClassVar[tuple[str, ...]] = ("-c", WITH_A_DEAF_PART)


@pytest.fixture
def plane(own_control_plane: ControlPlane) -> ControlPlane:
    """A control plane for this test alone, with the API types."""
    with client_for(own_control_plane.access.kubeconfig) as api:
        api_types.establish(api)
    return own_control_plane


def test_a_part_that_does_not_stop_is_named_and_the_lease_is_free(plane: ControlPlane, tmp_path: Path) -> None:
    operator = DeafOperator(plane.access.kubeconfig, tmp_path, *LEASE, serves=False).start()
    operator.wait_until_ready()
    status, log = operator.end(), operator.log.read_text()
    assert status == 1, log
    assert "the process has not ended within 20 s and ends itself; what did not stop: " in log
    assert "task deaf (deaf, <string>:" in log
    with client_for(plane.access.kubeconfig) as api:
        lease = client.CoordinationV1Api(api).read_namespaced_lease("orion-operator", NAMESPACE)
    assert not lease.spec.holder_identity


def test_an_operator_whose_api_server_answers_nothing_stops_in_time(plane: ControlPlane, tmp_path: Path) -> None:
    server = plane.pids()["kube-apiserver"]
    with running_operator(plane.access.kubeconfig, tmp_path, *LEASE, serves=False) as operator:
        os.kill(server, signal.SIGSTOP)
        try:
            assert operator.end() == 0, operator.log.read_text()
        finally:
            os.kill(server, signal.SIGCONT)
