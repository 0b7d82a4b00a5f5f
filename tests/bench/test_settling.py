"""The process that switches contexts: it answers, its end is told, and nothing of it stays."""

import os

import pytest

from orion.bench.managed import machine
from orion.bench.settling import Settler, SettlingError

FIRST = "0"


def test_it_switches_as_often_as_it_is_asked_to() -> None:
    with machine(simulated=True) as environment, Settler(environment, FIRST) as settler:
        for _ in range(3):
            settler.settle()


def test_it_ends_with_its_context() -> None:
    with machine(simulated=True) as environment:
        with Settler(environment, FIRST) as settler:
            process = settler._process
        assert process is not None
        assert process.poll() is not None


def test_without_a_gpu_the_error_says_which_call_failed() -> None:
    refused = pytest.raises(SettlingError, match=r"cu(Init|DeviceGet): CUDA error 10[01]")
    with machine(simulated=True) as environment, refused:
        Settler(environment, "no such GPU").__enter__()


def test_its_death_is_told() -> None:
    with machine(simulated=True) as environment, Settler(environment, FIRST) as settler:
        assert settler._process is not None
        os.kill(settler._process.pid, 9)
        with pytest.raises(SettlingError, match="gave no answer"):
            settler.settle()
