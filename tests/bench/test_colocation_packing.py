"""An output folder packed into one file, and the report from that file."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from orion.bench.colocation import packing, report, threads_verdict
from orion.cli.main import main
from orion.errors import Conflict, NotFound, Unreadable
from tests.bench.colocation_folder import SYSTEMS, ColocationFolder, workload

HP = workload("decode", "gpt-decode", batch=1)
BE = workload("gemm", "gemm", size=8192)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = ColocationFolder(tmp_path / "out")
    made.pair(HP, BE, {"gate": SYSTEMS["gate"]}, rounds=2, requests=200)
    return tmp_path / "out"


def test_a_packed_folder_gives_the_same_report(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report.write(folder)
    before = (folder / "report.md").read_text()
    assert main(["bench", "pack", str(folder), str(tmp_path / "kept" / "one.tgz")]) == 0
    assert "MiB" in capsys.readouterr().out
    again = tmp_path / "again"
    assert main(["bench", "report", str(tmp_path / "kept" / "one.tgz"), "--output", str(again)]) == 0
    assert (again / "report.md").read_text() == before
    assert not (again / "runs" / "decode" / "0" / "report.md").exists()


def test_only_raw_data_is_packed_and_equal_folders_give_equal_files(folder: Path, tmp_path: Path) -> None:
    packing.pack(folder, tmp_path / "a.tgz")
    report.write(folder)
    shutil.copytree(folder, tmp_path / "copy")
    packing.pack(tmp_path / "copy", tmp_path / "b.tgz")
    assert (tmp_path / "a.tgz").read_bytes() == (tmp_path / "b.tgz").read_bytes()


def test_a_packed_run_is_small(folder: Path, tmp_path: Path) -> None:
    runs = len(list((folder / "runs").rglob("*.json.gz")))
    assert packing.pack(folder, tmp_path / "a.tgz") / runs < 20_000  # 200 requests, some 600 steps of be


def test_errors_of_packing_and_unpacking_are_one_sentence(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="holds no runs"):
        packing.pack(tmp_path / "nowhere", tmp_path / "a.tgz")
    packing.pack(folder, tmp_path / "a.tgz")
    with pytest.raises(Conflict, match="exists already"):
        packing.unpack(tmp_path / "a.tgz", folder)
    with pytest.raises(Conflict, match="/proc/nowhere cannot be written: No such file or directory; give another"):
        packing.unpack(tmp_path / "a.tgz", Path("/proc/nowhere"))
    (tmp_path / "broken.tgz").write_bytes(b"no archive")
    with pytest.raises(Unreadable, match="not a file that `orion bench pack` wrote"):
        packing.unpack(tmp_path / "broken.tgz", tmp_path / "x")
    (tmp_path / "log").write_bytes(b"no archive")
    with pytest.raises(Unreadable, match="log is not a file that"):
        packing.unpack(tmp_path / "log", tmp_path / "log")  # the folder that `orion bench report log` would unpack into


def figure(median: float) -> dict[str, float]:
    return {"median": median, "low": 0.9 * median, "high": 1.1 * median}


COSTS = {
    "launch_over_plain_ns": {"be": figure(600.0), "hp": figure(400.0)},
    "products_over_plain": {"two hp, bfloat16": figure(1.004), "be and hp, streams, bfloat16": figure(1.8)},
}


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({}, "met"),
        ({"launch_over_plain_ns": {"be": figure(1100.0)}}, "missed"),
        ({"products_over_plain": {"be and hp, gate, bfloat16": figure(1.06)}}, "missed"),
        ({"products_over_plain": {}}, "incomplete"),
        ({"launch_over_plain_ns": 3}, "not measured"),
        ({"launch_over_plain_ns": {"be": {}}}, "not measured"),
    ],
)
def test_the_cost_of_threads_is_judged_from_its_own_file(changes: dict[str, Any], status: str, tmp_path: Path) -> None:
    (tmp_path / threads_verdict.FILE).write_text(json.dumps({"figures": {**COSTS, **changes}}))
    found = threads_verdict.verdict(tmp_path)
    assert found.status == status
    if status == "met":
        assert "be +600 (+540 to +660) ns a launch" in found.figures
        assert "two hp, bfloat16 1.004 (0.904 to 1.104) x" in found.figures


def test_a_file_without_quartiles_is_judged_by_its_medians(tmp_path: Path) -> None:
    launches = {"plain": 3000.0, "be": 3600.0}
    products = {"plain streams, bfloat16": 5.0, "two hp, bfloat16": 5.3}
    medians = {"launch_ns": launches, "products_ms": products}
    (tmp_path / threads_verdict.FILE).write_text(json.dumps({"medians": medians}))
    found = threads_verdict.verdict(tmp_path)
    assert found.status == "missed"
    assert found.figures == "be +600 ns a launch; two hp, bfloat16 1.060 x plain streams"


def test_without_the_file_the_cost_of_threads_is_not_measured(tmp_path: Path) -> None:
    assert threads_verdict.verdict(tmp_path).status == "not measured"
