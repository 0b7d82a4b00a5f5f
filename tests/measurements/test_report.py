"""Tables made of raw data."""

import json
from pathlib import Path
from typing import Any

import pytest

from measurements.overhead import report
from orion.bench import raw_data


def solo_overhead() -> dict[str, Any]:
    rows = [
        {
            "load": "gemm",
            "role": role,
            "turn": turn,
            "system": system,
            "per_second": speed * (1 + turn),
            "unit": "products",
            "ends": [],
        }
        for turn in range(3)
        for role, slowed in (("hp", 99.9), ("be", 99.5))
        for system, speed in (("off", 100.0), (role, slowed))
    ]
    return {**raw_data.header("measurements.overhead.solo_overhead"), "rows": rows}


def test_hook_on_and_off_are_compared_turn_by_turn() -> None:
    text = report.markdown(solo_overhead())
    assert "0.9990 (0.9990 to 0.9990) | 0.9950 (0.9950 to 0.9950)" in text


def test_a_role_that_was_not_measured_has_an_empty_cell() -> None:
    raw = solo_overhead()
    rows = [{**row, "load": "jax-training"} for row in raw["rows"] if row["role"] == "be"]
    text = report.markdown({**raw, "idle_hp": True, "rows": rows})
    assert "| jax-training | 200.0 products/s |  | 0.9950 (0.9950 to 0.9950) |  |" in text
    rows += [
        {**row, "system": "none", "per_second": 100.0 * (1 + row["turn"])} for row in rows if row["system"] == "be"
    ]
    assert "| 0.9950 (0.9950 to 0.9950) | 0.9950 (0.9950 to 0.9950) |" in report.markdown({**raw, "rows": rows})


def eager_overhead(instructions: int | None) -> dict[str, Any]:
    rows = [
        {
            "turn": turn,
            "system": system,
            "requests": 10,
            "latencies_ms": [2.0 * slower, 2.0 * slower, 9.0],
            "cpu_s": 0.003 * slower * (1 + turn),
            "hook_threads_cpu_s": 0.0001,
            "instructions": instructions,
        }
        for turn in range(3)
        for system, slower in (("off", 1.0), ("alone", 1.01), ("held", 1.02), ("off-open", 1.0), ("working", 1.05))
    ]
    head = raw_data.header("measurements.overhead.eager_overhead")
    return {**head, "cpus": [[2], [4, 5]], "launches_of_a_request": 100.0, "rows": rows}


def test_eager_systems_are_compared_with_their_references() -> None:
    text = report.markdown(eager_overhead(instructions=5_000_000))
    assert "| held | 2.040 | 1.020 (1.020 to 1.020) | 6.120 | 1.020 (1.020 to 1.020) | 0.100 | 1.000 (" in text
    assert "| working | 2.100 | 1.050 (1.050 to 1.050) |" in text
    assert "not counted" in report.markdown(eager_overhead(instructions=None))


def test_the_command_prints_a_table_from_a_compressed_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw_data.write(tmp_path / "raw.json.gz", solo_overhead())
    assert report.main([str(tmp_path / "raw.json.gz")]) == 0
    assert "| bf16 GEMM 8192 loop | 200.0 products/s |" in capsys.readouterr().out


@pytest.mark.parametrize(
    "content", ["", "{}", "[1]", json.dumps({"experiment": "other", "machine": "", "command": ""})]
)
def test_other_files_are_refused_in_one_sentence(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "raw.json").write_text(content)
    assert report.main([str(tmp_path / "raw.json")]) == 1
    assert capsys.readouterr().err.count("\n") == 1
