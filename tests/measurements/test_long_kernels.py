"""The probe of long kernels compiles and runs; it controls the channel groups that a kernel driver shows it."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from measurements import long_kernels
from orion.hook import cuda_header

PROBES = Path(__file__).parents[2] / "measurements" / "probes"
WARNINGS = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror"]


def run_probe(c_build: Path, folder: Path, sections: str, **environment: str) -> list[dict[str, Any]]:
    probe, library = folder / "long_kernels", c_build / "sim"
    libraries = ["-rdynamic", f"-L{library}", "-l:libcuda.so.1", "-lm", "-lpthread", "-ldl"]
    headers = f"-I{cuda_header.find().parent}"
    subprocess.run(
        ["gcc", *WARNINGS, headers, str(PROBES / "long_kernels.c"), "-o", str(probe), *libraries], check=True
    )
    settings = {"LD_LIBRARY_PATH": str(library), "ORION_SIM_STATE": str(folder / "machine"), **environment}
    done = subprocess.run(
        [str(probe), sections],
        env={**os.environ, **settings},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=60,
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert {row["status"] for row in rows if "ended" in row} == {0}
    return rows


def test_every_section_ends_on_the_simulated_gpu(c_build: Path, tmp_path: Path) -> None:
    rows = run_probe(c_build, tmp_path, "TPECS", LONG_KERNELS_PROGRAM="echo ready; exec sleep 60")
    assert [row["goes_on"] for row in rows if row.get("what") == "criterion"] == [False] * 4
    assert {row["early"] for row in rows if "early" in row} >= {"nothing", "an empty kernel"}
    assert [row["be"] for row in rows if "mhz_of_kernel" in row][-1] == "the given program"
    report = long_kernels.report(rows)
    assert "no channel group" in report
    assert "an empty kernel" in report
    assert "the given program" in report


def test_slices_of_the_groups_that_a_kernel_driver_shows(c_build: Path, tmp_path: Path) -> None:
    driver = tmp_path / "fake_kernel_driver.so"
    source = Path(__file__).parent / "fake_kernel_driver.c"
    subprocess.run(["gcc", *WARNINGS, "-shared", "-fPIC", str(source), "-o", str(driver)], check=True)
    rows = run_probe(c_build, tmp_path, "TPS", LD_PRELOAD=str(driver))
    groups = [row for row in rows if row.get("what") == "a channel group" and row["of"] == "hp"]
    assert [(row["engine"], row["slice_us"]) for row in groups[:2]] == [(1, 2048), (9, 0)]
    criterion = next(row for row in rows if row.get("what") == "criterion")
    assert (criterion["compute_groups"], criterion["usual_slice_us"], criterion["goes_on"]) == (1, 2048, True)
    assert {row["slices"] for row in rows if "slices" in row} >= {"CUDA's", "be 200, hp 10000", "be 50, hp 10000"}
    assert next(row["status"] for row in rows if row.get("what") == "interleave level high") == 0x1B
    assert {row["be_reaction"] for row in rows if "reaction_us" in row} == {"preempts", "stops"}
    assert "be 200, hp 10000" in long_kernels.report(rows)
