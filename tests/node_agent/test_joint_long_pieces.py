"""A job that uses several GPUs, in pieces longer than its window: they run on into the time of other slots."""

import pytest

from orion.node_agent.sharing.demand import Demand
from tests.node_agent.joint_node import MS, STEP_NS, Node


class InPieces(Node):
    """The job `be-0` always has work, in pieces that run on all of its GPUs at once."""

    check_ns = 25 * MS

    def __init__(self, *requests: dict[str, float], piece_ns: int) -> None:
        super().__init__(*requests)
        self.piece_ns, self.left_ns, self.done_ns = piece_ns, 0.0, 0.0
        self.completed = 0
        self.reported = [0] * len(requests)

    def demand(self, number: int, name: str, request: float) -> Demand:
        if name != "be-0":
            return Demand(request, launched=True, waiting=True)
        reported, self.reported[number] = (self.completed - self.reported[number]) * self.piece_ns, self.completed
        return Demand(request, reported_ns=reported, piece_ns=self.piece_ns, launched=True, waiting=True)

    def work(self, holders: list[set[str]]) -> None:
        """Let the job work for a step: at half the speed where another slot has the turn."""
        if self.left_ns <= 0 and all("be-0" in names for names in holders):
            self.left_ns = self.piece_ns
        if self.left_ns > 0:
            contended = any(names - {"be-0"} for names in holders)
            self.left_ns -= STEP_NS / 2 if contended else STEP_NS
            self.done_ns += STEP_NS / 2 if contended else STEP_NS
            self.completed += self.left_ns <= 0


@pytest.mark.parametrize(("request_of_job", "piece_ms"), [(0.5, 10), (0.25, 30), (0.25, 100), (0.5, 60), (0.1, 60)])
def test_a_job_gets_no_more_than_it_is_due(request_of_job: float, piece_ms: int) -> None:
    node = InPieces({"be-0": request_of_job, "be-1": 0.0}, {"be-0": request_of_job}, piece_ns=piece_ms * MS)
    for holders in node.run(4.0):
        node.work(holders)
    before, began = node.done_ns, node.now
    for holders in node.run(12.0):
        node.work(holders)
    assert (node.done_ns - before) / (node.now - began) == pytest.approx(request_of_job, rel=0.15)
