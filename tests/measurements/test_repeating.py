"""What measurements repeat beside themselves."""

import threading

import pytest

from measurements.repeating import repeated


def test_an_action_is_repeated_until_the_context_ends() -> None:
    calls, before = threading.Semaphore(0), threading.active_count()
    with repeated(calls.release, 0.001):
        assert all(calls.acquire(timeout=30) for _ in range(3))
    assert threading.active_count() == before


def test_an_action_that_fails_fails_the_measurement() -> None:
    called = threading.Event()

    def fails() -> None:
        called.set()
        raise ValueError("the driver does not answer")

    with pytest.raises(ValueError, match="the driver does not answer"), repeated(fails, 0.001):
        assert called.wait(30)
