"""The measurement of turns that end early, on the simulated GPU."""

from pathlib import Path

import pytest

from measurements.overhead import early_ends
from orion.bench import raw_data


def test_a_handover_counts_if_the_other_waited_and_the_sleeper_slept() -> None:
    kernel = 0.1
    waited, ran_beside, came_back, last = [0, 3, 1, 4], [10, 13, 12.9995, 14], [20, 23, 21, 26], [25, 28, 26, 28.5]
    found = early_ends.handovers([waited, ran_beside, came_back, last], kernel)
    assert found == pytest.approx([0.9, 0.4])


def test_each_request_has_the_kernels_around_its_end() -> None:
    rows = early_ends.around(starts=[0, 10, 20], ends=[3, 13, 23], others=[1, 4, 12, 14, 30])
    assert rows == [[0, 3, 1, 4], [10, 13, 12, 14]]


def test_it_measures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    early_ends.main(["--simulated", "--seconds", "1", "--output", str(tmp_path / "ends.json.gz")])
    assert "requests count; handover: median" in capsys.readouterr().out
    raw = raw_data.read(tmp_path / "ends.json.gz")
    assert early_ends.handovers(raw["requests"], raw["kernel"])
