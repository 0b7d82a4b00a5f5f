"""A replica without the Lease keeps all objects current and queues none of them; with the Lease, it queues all."""

import asyncio
from typing import cast

from orion.api_server.requests import ApiServer
from orion.operator.reconciler.controller import Controller
from orion.operator.reconciler.keys import Key, Kind
from orion.operator.reconciler.metrics import Metrics
from orion.operator.reconciler.records import Named
from orion.operator.reconciler.state import State
from orion.operator.reconciler.watching import Intake
from tests.operator.fake_cluster import Body
from tests.waiting import DEADLINE


class Leader:
    """A Lease that the test gives."""

    def __init__(self) -> None:
        self.taken = asyncio.Event()

    def mine(self) -> bool:
        return self.taken.is_set()


def pod(number: int) -> Body:
    meta = {"namespace": "n", "name": f"p{number}", "uid": f"u{number}", "resourceVersion": "7"}
    return {"metadata": {**meta, "annotations": {"orion/priority": "be"}}, "spec": {"containers": []}}


def standby() -> tuple[Controller, Intake, Leader]:
    state, leader = State(), Leader()
    controller = Controller(state, cast("ApiServer", None), leader, Metrics(), "test")
    return controller, Intake(state, controller), leader


async def test_pods_that_come_and_go_leave_nothing_behind_without_the_lease() -> None:
    controller, intake, _ = standby()
    intake.pod({"type": "ADDED", "object": pod(100)})
    await controller.begin()
    for number in range(100):
        intake.pod({"type": "ADDED", "object": pod(number)})
        intake.pod({"type": "DELETED", "object": pod(number)})
    assert len(controller.queue) == 0


async def test_all_objects_are_queued_when_the_lease_is_taken_and_changes_from_then_on() -> None:
    controller, intake, leader = standby()
    await controller.begin()
    for number in range(3):
        intake.pod({"type": "ADDED", "object": pod(number)})
    controller.leads()
    leader.taken.set()
    intake.pod({"type": "ADDED", "object": pod(3)})
    async with asyncio.timeout(DEADLINE):
        keys = {await controller.queue.take() for _ in range(4)}
    assert keys == {Key(Kind.POD, Named("n", f"p{number}")) for number in range(4)}
