"""Tables from raw data."""

import json
from pathlib import Path
from typing import Any

import pytest

from orion.bench import raw_data, report


def run(number: int, system: str, latency: float, be_step: float) -> dict[str, Any]:
    arrivals = [0.5 + 0.01 * index for index in range(300)]
    row: dict[str, Any] = {"be": "gemm", "round": number, "system": system, "window": [1.0, 3.49]}
    if system != "be-alone":
        row |= {"arrivals": arrivals, "ends": [due + latency for due in arrivals]}
    if system != "alone":
        row |= {"be_ends": [be_step * index for index in range(int(3.6 / be_step))], "be_amount": 8.0}
    return row


def colocation() -> dict[str, Any]:
    runs = []
    for number in range(3):
        runs += [run(number, "alone", 0.004, 0), run(number, "be-alone", 0, 0.01), run(number, "orion", 0.0041, 0.016)]
    return {
        **raw_data.header("colocation"), "rate": 80.0, "lead_seconds": 1.0,
        "be": {"gemm": {}}, "runs": runs, "errors": [],
    }  # fmt: skip


def test_ratios_are_to_the_rounds_own_references() -> None:
    ratios = report.compare(colocation()["runs"], "gemm", "orion")
    assert ratios["p99"].value == pytest.approx(1.025)
    assert ratios["be"].value == pytest.approx(0.625)
    assert len(ratios["p99"].rounds) == 3


def test_a_round_that_lacks_a_side_does_not_count() -> None:
    runs = [row for row in colocation()["runs"] if (row["round"], row["system"]) != (1, "alone")]
    assert len(report.compare(runs, "gemm", "orion")["p99"].rounds) == 2


def test_the_lead_in_does_not_count() -> None:
    assert len(report.hp_latencies(run(0, "alone", 0.004, 0))) == 250


def test_the_command_prints_a_table_from_a_compressed_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw_data.write(tmp_path / "raw.json.gz", colocation())
    assert report.main([str(tmp_path / "raw.json.gz")]) == 0
    printed = capsys.readouterr().out
    assert "| bf16 GEMM 8192 loop | orion | 1.025 (1.025 to 1.025)" in printed
    assert "250 requests a side" in printed


def test_hook_on_and_off_are_compared_turn_by_turn() -> None:
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
    text = report.markdown({**raw_data.header("solo_overhead"), "rows": rows})
    assert "0.9990 (0.9990 to 0.9990) | 0.9950 (0.9950 to 0.9950)" in text


@pytest.mark.parametrize(
    "content", ["", "{}", "[1]", json.dumps({"experiment": "other", "machine": "", "command": ""})]
)
def test_a_file_of_something_else_is_refused_in_one_sentence(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "raw.json").write_text(content)
    assert report.main([str(tmp_path / "raw.json")]) == 1
    assert capsys.readouterr().err.count("\n") == 1
