"""The benchmark of eager hp programs, on the simulated GPU."""

from pathlib import Path

import pytest

from measurements.overhead import eager_overhead, report
from orion.bench import raw_data


def test_each_turn_measures_all_systems(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert eager_overhead.main(["--simulated", "--turns", "2", "--seconds", "0.2", "--output", str(tmp_path)]) == 0
    path = tmp_path / "eager_overhead.json.gz"
    rows = raw_data.read(path)["rows"]
    assert sorted(row["turn"] for row in rows) == [0] * 5 + [1] * 5
    assert {row["system"] for row in rows if row["be_ends"]} == {"held", "working"}
    assert all((row["hook_threads_cpu_s"] > 0) == (not row["system"].startswith("off")) for row in rows)
    assert report.main([str(path)]) == 0
    assert "| working |" in capsys.readouterr().out
