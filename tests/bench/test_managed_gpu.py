"""Which GPU of a machine a bench manages."""

import pytest

from orion.bench.managed import ManagedGPU, machine
from orion.errors import Unavailable


def test_it_is_the_one_that_the_programs_see() -> None:
    with machine(simulated=True) as found:
        found["ORION_SIM_GPUS"] = "2"
        with ManagedGPU(found, simulated=True) as managed:
            uuids = managed.uuids()
        for first in ("1", uuids[1]):
            with ManagedGPU({**found, "CUDA_VISIBLE_DEVICES": f"{first},0"}, simulated=True) as managed:
                assert managed.gpu.uuid == uuids[1]


def test_one_that_does_not_exist_is_an_error() -> None:
    with machine(simulated=True) as found:
        found["CUDA_VISIBLE_DEVICES"] = "3"
        with pytest.raises(Unavailable, match="no GPU 3"), ManagedGPU(found, simulated=True):
            pass
