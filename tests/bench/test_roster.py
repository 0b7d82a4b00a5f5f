from typing import cast

import pytest

from orion.bench.colocation.posts import Client, Post
from orion.bench.colocation.roster import TRIES, Roster
from orion.bench.colocation.shared_gpu import SharedGPU
from orion.bench.workers.crew import Crew, Worker
from orion.errors import Unavailable


class FakeGPU:
    def environment(self, ranks: int = 1) -> dict[str, str]:
        return {}


class FakeCrew:
    def end(self, workers: list[Worker]) -> None:
        assert not workers


def test_a_post_whose_process_does_not_start_is_given_up_after_three_failures() -> None:
    client = Client("hp", "spin", "{}")
    post = Post("timeslice", None, False, "hp", 0, 0.0, (client,), "no", (), (), ("/bin/false",))
    gpu = cast("SharedGPU", FakeGPU())
    with Roster(cast("Crew", FakeCrew()), {"timeslice": gpu}, lambda: 100.0) as roster:
        for _ in range(TRIES):
            with pytest.raises(Unavailable, match="ended with status 1"):
                roster.fill([post])
        with pytest.raises(Unavailable, match="not tried again after 3 failures"):
            roster.fill([post])
