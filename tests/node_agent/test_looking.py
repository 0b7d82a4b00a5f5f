"""Each GPU is checked in its own time, and all together while slots compete for turns."""

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orion.node_agent.sharing.looking import Looking

PAUSES = st.sampled_from([0.025, 0.1, 0.5])


class Served:
    """A GPU whose checks are so far apart; `now` is the time of all."""

    now = 0.0
    unsaved = False

    def __init__(self, pause: float) -> None:
        self.look_seconds, self.looks, self.fails = pause, [0.0], False
        self.turns: Any = type("Turns", (), {"competing": False})()

    def look(self, now_ns: int) -> None:
        self.looks.append(now_ns / 1e9)
        if self.fails:
            raise ValueError

    def seconds_left(self, now_ns: int) -> float:
        return self.look_seconds - (now_ns / 1e9 - self.looks[-1])


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic_ns", lambda: round(Served.now * 1e9))


@pytest.mark.usefixtures("clock")
def test_each_gpu_is_checked_in_its_own_time() -> None:
    @given(st.lists(PAUSES, min_size=1, max_size=6), st.booleans())
    def holds(pauses: list[float], fails: bool) -> None:
        gpus: Any = {str(number): Served(pause) for number, pause in enumerate(pauses)}
        gpus["0"].fails, Served.now = fails, 0.0
        looking = Looking(gpus, lambda: None)
        while Served.now < 5.0:
            seconds = looking.look(only_due=True)
            assert seconds > 0
            Served.now += seconds
        for each in gpus.values():
            between = [later - before for before, later in zip(each.looks[1:], each.looks[2:], strict=False)]
            assert max(between) <= each.look_seconds + 0.001
            assert min(between) >= 0.7 * each.look_seconds, "it is checked no more often because of others"

    holds()


@pytest.mark.usefixtures("clock")
def test_all_gpus_are_checked_together_while_slots_compete_on_one() -> None:
    gpus: Any = {"busy": Served(0.1), "idle": Served(0.5)}
    looking, Served.now = Looking(gpus, lambda: None), 0.1
    looking.look(only_due=True)
    assert len(gpus["idle"].looks) == 1
    gpus["busy"].turns.competing, Served.now = True, 0.2
    looking.look(only_due=True)
    assert gpus["idle"].looks[-1] == 0.2
    gpus["busy"].turns.competing, Served.now = False, 0.21
    looking.look()
    assert gpus["idle"].looks[-1] == 0.21, "somebody wants a check of all"


@pytest.mark.usefixtures("clock")
def test_a_gpu_that_fails_beside_one_that_is_checked_more_often_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gpus: Any = {"fails": Served(0.1), "works": Served(0.025)}
    gpus["fails"].fails, Served.now = True, 0.0
    looking = Looking(gpus, lambda: None)
    while Served.now < 2.0:
        Served.now += looking.look(only_due=True)
    assert len(caplog.records) == 1
