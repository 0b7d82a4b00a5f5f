"""The probe of cut graphs compiles and runs; the simulated GPU refuses what the hook must not cut."""

import json
import os
import subprocess
from pathlib import Path

from orion.hook import cuda_header

PROBES = Path(__file__).parents[2] / "measurements" / "probes"


def run_probe(c_build: Path, folder: Path, sections: str) -> list[dict[str, object]]:
    probe, library = folder / "graph_cuts", c_build / "sim"
    warnings = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror"]
    libraries = [f"-L{library}", "-l:libcuda.so.1", "-lm", "-lpthread", "-ldl"]
    headers = f"-I{cuda_header.find().parent}"
    subprocess.run(["gcc", *warnings, headers, str(PROBES / "graph_cuts.c"), "-o", str(probe), *libraries], check=True)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library), "ORION_SIM_STATE": str(folder / "machine")}
    done = subprocess.run(
        [str(probe), sections], env=environment, stdout=subprocess.PIPE, text=True, check=True, timeout=60
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_probe_reports_which_graphs_can_be_cut(c_build: Path, tmp_path: Path) -> None:
    rows = run_probe(c_build, tmp_path, "FG")
    assert [row["status"] for row in rows if "ended" in row] == [0, 0, 0]
    cut = {row["graph"]: row["copied_and_cut"] for row in rows if "copied_and_cut" in row}
    whole = {name for name, result in cut.items() if result == "CUDA_SUCCESS"}
    assert whole == {
        *("kernels", "waits", "host", "event record", "event wait", "memset", "empty"),
        *("child graph", "child graph that waits"),
    }
    assert {cut[name] for name in cut.keys() - whole} == {"CUDA_ERROR_NOT_SUPPORTED"}
    moves = {(row["from"], row["by"]): row["why"] for row in rows if "why" in row}
    stays = ("kern, ctx = green", "captured on the green stream")
    assert moves.pop(stays) == 0
    assert set(moves.values()) == {7}


def test_pieces_of_a_graph_have_all_its_kernels(c_build: Path, tmp_path: Path) -> None:
    rows = [row for row in run_probe(c_build, tmp_path, "D") if "pieces" in row]
    assert {17, 63} < {row["pieces"] for row in rows}
    assert [row["kernels_in_pieces"] for row in rows] == [row["kernels"] for row in rows]


def test_the_library_that_counts_calls_compiles(tmp_path: Path) -> None:
    command = ["gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run([*command, str(PROBES / "graph_calls.c"), "-o", str(tmp_path / "calls.so"), "-ldl"], check=True)
