"""The constants of an H200 in orion.simulation.gpu are those of the probe's raw data; the picture of pairs is drawn."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from measurements import clock_constants, predicted_pairs
from orion.simulation.gpu.h200 import H200

RAW = Path(__file__).parents[2] / "docs" / "results" / "raw" / "work-alone.json.gz"


@pytest.fixture(scope="module")
def works() -> list[dict[str, Any]]:
    raw = json.loads(gzip.decompress(RAW.read_bytes()))
    assert raw["gpu"] == H200.gpu
    found: list[dict[str, Any]] = raw["work"]
    return found


def test_power_and_rests_are_those_of_the_raw_data(works: list[dict[str, Any]]) -> None:
    compared = 0
    for work in works:
        known = H200.work_of(work["work"], work["options"])
        if known is None:
            assert work["work"] == "gemm"  # its power follows from be alone of each archive
            continue
        assert known.power_w == round(clock_constants.power(work))
        if known.rest_ms:
            rests = clock_constants.rests(work["kernels"])
            assert [value for _, value in known.rest_ms] == pytest.approx([rest / 1e3 for rest in rests], abs=6e-4)
            compared += 1
    assert compared == 3


def test_the_fit_moves_towards_the_raw_data(works: list[dict[str, Any]]) -> None:
    control = H200.power
    constants = (
        1.4, control.exponent.value, control.memory_ms.value, control.gain_per_ms.value,
        control.fastest_rise_per_ms.value, control.fastest_drop_per_ms.value,
    )  # fmt: skip
    seen = clock_constants.observed(works)
    total, sensitivities = clock_constants.error(constants, seen)
    assert total < 0.85 * clock_constants.error(clock_constants.START, seen)[0]
    for number, sensitivity in sensitivities.items():
        known = H200.work_of(works[number]["work"], works[number]["options"])
        assert known is not None
        assert known.clock_sensitivity == pytest.approx(sensitivity, abs=0.02)


def test_the_picture_of_pairs_is_the_same_each_time(tmp_path: Path) -> None:
    figures = {"be": 0.5, "hp_p50": 4.0, "hp_p99": 12.0}
    pair = {"be": "gemm-size-8192", "predicted": figures, "measured": figures}
    without = {"be": "gemm-size-8192", "predicted": None, "measured": figures}
    (tmp_path / "a.json").write_text(json.dumps({"pairs": [pair, without]}))
    for name in ("one.svg", "two.svg"):
        assert predicted_pairs.main([str(tmp_path / "a.json"), "--output", str(tmp_path / name)]) == 0
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
