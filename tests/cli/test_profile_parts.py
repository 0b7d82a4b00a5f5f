"""The parts of `orion profile`: occupancy, names, Nsight Compute's reports, Orion's files."""

import contextlib
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orion.cli.main import main
from orion.cli.profiling import names, nsight_compute, orion_csv
from orion.cli.profiling.occupancy import Limits, blocks_per_sm, sms_needed
from orion.cli.profiling.units import Unit
from orion.crds.profile import KernelClass
from orion.crds.profile_file import format_profile, parse_profile
from orion.errors import Unreadable

HOPPER = Limits(
    sms=132,
    threads_per_sm=2048,
    blocks_per_sm=32,
    registers_per_sm=65536,
    shared_per_sm=233472,
    reserved_shared_per_block=1024,
    warp=32,
    major=9,
)


# The results of NVIDIA's occupancy calculator for compute capability 9.0.
@pytest.mark.parametrize(
    ("threads", "registers", "shared", "blocks"),
    [
        (256, 32, 0, 8),
        (256, 40, 0, 6),
        (256, 255, 0, 1),
        (1024, 64, 0, 1),
        (1024, 32, 0, 2),
        (128, 168, 0, 3),
        (32, 16, 0, 32),
        (33, 16, 0, 32),
        (96, 24, 0, 21),
        (128, 32, 100 * 1024, 2),
        (128, 32, 227 * 1024, 1),
        (128, 32, 228 * 1024, 0),
        (384, 168, 200 * 1024, 1),
    ],
)
def test_blocks_that_fit_on_an_sm(threads: int, registers: int, shared: int, blocks: int) -> None:
    assert blocks_per_sm(HOPPER, threads, registers, shared) == blocks


@given(
    blocks=st.integers(1, 1 << 31),
    threads=st.integers(1, 1024),
    registers=st.integers(0, 255),
    shared=st.integers(0, 1 << 18),
)
def test_sms_needed_are_at_least_one_and_enough(blocks: int, threads: int, registers: int, shared: int) -> None:
    needed = sms_needed(HOPPER, blocks, threads, registers, shared)
    each = max(1, blocks_per_sm(HOPPER, threads, registers, shared))
    assert needed >= 1
    assert (needed - 1) * each < blocks <= needed * each


@pytest.mark.parametrize(
    ("name", "base"),
    [
        (
            "void at::native::vectorized_elementwise_kernel<4, at::Fill<int>, char*>(int, float)",
            "at::native::vectorized_elementwise_kernel",
        ),
        ("void (anonymous namespace)::softmax<float>(float*)", "anonymous::softmax"),
        ("sm90_xmma_gemm_bf16bf16_128x128", "sm90_xmma_gemm_bf16bf16_128x128"),
        ("_ZN3bad", "_ZN3bad"),
        ("void f<g::{lambda(int)#1}>(g::{lambda(int)#1})", "f"),
        ("", ""),
    ],
)
def test_base_names(name: str, base: str) -> None:
    assert names.base_name(name) == base


def test_demangling() -> None:
    assert names.demangle("_Z3addPi") == "add(int*)"
    assert names.demangle("triton_poi_fused_add_0") == "triton_poi_fused_add_0"
    assert names.demangle("_Zbroken") == "_Zbroken"


# -- Nsight Compute --------------------------------------------------------------------------------------------------
SM = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
DRAM = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"
TENSOR = "sm__inst_executed_pipe_tensor_op_hmma.avg.pct_of_peak_sustained_active"
FFMA, PEAK = (
    "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum.per_cycle_elapsed",
    "sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained",
)
WGMMA = "sm__ops_path_tensor_src_bf16_dst_fp32.sum"


def _report(tmp_path: Path, cells: dict[str, str], units: dict[str, str] | None = None) -> Path:
    columns = {"ID": "0", "Kernel Name": "f", "Block Size": "(32, 1, 1)", "Grid Size": "(1, 1, 1)"} | cells
    rows = [list(columns), [(units or {}).get(column, "") for column in columns], list(columns.values())]
    path = tmp_path / "report.csv"
    table = "\n".join(",".join(f'"{cell}"' for cell in row) for row in rows)
    path.write_text(f"epoch 1, loss 2\n==PROF== Connected to process 1\n{table}\n")
    return path


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ({SM: "75.0", DRAM: "10"}, "compute"),
        ({SM: "30", DRAM: "61"}, "memory"),
        ({SM: "70", DRAM: "85"}, "memory"),
        ({SM: "85", DRAM: "70"}, "compute"),
        ({SM: "20", TENSOR: "62", DRAM: "30"}, "compute"),
        ({SM: "20", DRAM: "30"}, "unknown"),
        ({SM: "20", DRAM: "10", FFMA: "8,448.0", PEAK: "16,896"}, "compute"),
        ({SM: "20", DRAM: "55", FFMA: "1,000", PEAK: "16,896"}, "memory"),
        (
            {
                SM: "20",
                DRAM: "30",
                FFMA: "0",
                PEAK: "16896",
                f"{WGMMA}.per_cycle_elapsed": "40",
                f"{WGMMA}.peak_sustained": "100",
            },
            "compute",
        ),
        ({SM: "20", DRAM: "0", FFMA: "0", PEAK: "16896"}, "unknown"),
        ({SM: "n/a", DRAM: ""}, "unknown"),
    ],
)
def test_classes_of_kernels_in_a_report(tmp_path: Path, cells: dict[str, str], expected: str) -> None:
    report = nsight_compute.read_report(_report(tmp_path, cells))
    assert set(report.values()) == {KernelClass(expected)}


def test_the_use_of_dram_is_computed_from_bytes_if_its_percentage_is_missing(tmp_path: Path) -> None:
    cells = {SM: "10", FFMA: "100", PEAK: "16896", "dram__bytes.sum.per_second": "1.2"}
    cells |= {"dram__bytes.sum.peak_sustained": "1,600", "dram__cycles_elapsed.avg.per_second": "3"}
    units = {"dram__bytes.sum.per_second": "Tbyte/s", "dram__cycles_elapsed.avg.per_second": "Ghz"}
    units["dram__bytes.sum.peak_sustained"] = "byte/cycle"
    report = nsight_compute.read_report(_report(tmp_path, cells, units))
    assert set(report.values()) == {KernelClass.MEMORY}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nothing here\n", ":1: expected a table"),
        ('"ID","Kernel Name","Metric Name","Metric Value"\n', ":1: expected one column a metric"),
        ('"ID","Kernel Name","other"\n', ":1: expected the column"),
        (f'"ID","Kernel Name","{SM}"\n"0","f"\n', ":2: expected 3 cells"),
    ],
)
def test_bad_reports_are_named_with_their_line(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(Unreadable, match=words):
        nsight_compute.read_report(path)


@given(st.text())
def test_no_text_breaks_the_report_reader(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "report.csv")
        path.write_text(f'"ID","Kernel Name","{SM}"\n{text}', errors="replace")
        with contextlib.suppress(Unreadable):
            nsight_compute.read_report(path)


# -- Orion's files ---------------------------------------------------------------------------------------------------
HEADER = "Name,Profile,Memory_footprint,SM_usage,Duration\n"


def _rows(tmp_path: Path, text: str, unit: Unit = Unit.NS) -> list[orion_csv.Row]:
    path = tmp_path / "orion.csv"
    path.write_text(text)
    return orion_csv.read_rows(path, unit)


def test_orions_rows_become_kernels(tmp_path: Path) -> None:
    rows = _rows(tmp_path, HEADER + "Conv,1,0,392,100480\nBatchNorm,0,0,64,40480\nConv,1,0,392,100000\n")
    profile = orion_csv.to_profile(rows, "resnet", 80)
    conv, norm = profile.spec.kernels
    assert (conv.name, conv.launches, conv.kernel_class) == ("Conv", 2, KernelClass.COMPUTE)
    assert (conv.sms_needed, conv.sms_needed_uncapped, conv.duration_ns.median) == (80, 392, 100240)
    assert (norm.kernel_class, norm.grid) == (KernelClass.MEMORY, None)
    assert parse_profile(format_profile(profile), "x") == profile


def test_a_name_may_have_commas_in_it(tmp_path: Path) -> None:
    assert _rows(tmp_path, HEADER + "void f<int, 4>,-1,0,98,6976\n")[0].name == "void f<int, 4>"


def test_a_file_in_another_unit_gets_a_warning(tmp_path: Path) -> None:
    text = HEADER + "gemm,1,0,98,100.5\n"
    assert _rows(tmp_path, text, Unit.US)[0].duration_ns == 100_500
    suspicious = orion_csv.to_profile(_rows(tmp_path, text), "x", None)
    assert any("--unit us" in warning for warning in suspicious.spec.source.warnings)
    others = orion_csv.to_profile(_rows(tmp_path, HEADER + "gemm,1,0,98,100480\n", Unit.US), "x", None)
    assert any("100 ms, longer than most kernels: try --unit ns" in warning for warning in others.spec.source.warnings)


def test_a_written_file_is_read_back_equal(tmp_path: Path) -> None:
    rows = [orion_csv.Row("a;b", KernelClass.MEMORY, 3, 1000.0), orion_csv.Row("c", KernelClass.UNKNOWN, 0, 5.0)]
    orion_csv.write_rows(tmp_path / "out.csv", rows)
    assert orion_csv.read_rows(tmp_path / "out.csv", Unit.NS) == rows


ROWS = st.builds(
    orion_csv.Row,
    st.text(st.characters()),  # also surrogates
    st.sampled_from(KernelClass),
    st.integers(0, 2**31 - 1),
    st.integers(0, 10**15 - 1).map(float),
)


@given(st.lists(ROWS, min_size=1, max_size=20))
def test_rows_keep_their_order_with_any_names(rows: list[orion_csv.Row]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "out.csv")
        assert orion_csv.write_rows(path, rows) == len(rows)
        # The published Orion splits each row at every comma into five cells.
        assert all(line.count(",") == 4 for line in path.read_text().splitlines())
        read = orion_csv.read_rows(path, Unit.NS)
    assert [(row.kernel_class, row.sms, row.duration_ns) for row in read] == [
        (row.kernel_class, row.sms, row.duration_ns) for row in rows
    ]


@given(st.text())
def test_no_text_breaks_the_reader_of_orions_files(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "orion.csv")
        path.write_text(HEADER + text)
        with contextlib.suppress(Unreadable):
            orion_csv.to_profile(orion_csv.read_rows(path, Unit.NS), "x", 132)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ":1: expected Name,Profile"),
        ("Name,Duration\n", ":1: expected Name,Profile"),
        (HEADER, ":2: expected a row"),
        (HEADER + "Conv,1,0,98\n", ":2: expected five cells"),
        (HEADER + "Conv,1,0,98,1\nConv,2,0,98,1\n", ":3: expected a Profile of 1, 0 or -1"),
        (HEADER + "Conv,1,0,-8,1\n", ":2: expected an SM_usage"),
        (HEADER + "Conv,1,0,8,fast\n", ":2: expected a Duration"),
        (HEADER + "Conv,1,0,8,nan\n", ":2: expected a Duration"),
    ],
)
def test_bad_rows_are_named_with_their_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(Unreadable, match=words):
        _rows(tmp_path, text)


def test_import_from_the_command_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ResNet 50.csv").write_text(HEADER + "Conv,1,0,98,100480\n")
    output = tmp_path / "profile.yaml"
    assert main(["profile", "import", str(tmp_path / "ResNet 50.csv"), "--model-sms", "80", "-o", str(output)]) == 0
    assert parse_profile(output.read_text(), "x").metadata.name == "resnet-50"
    assert main(["profile", "import", str(tmp_path / "missing.csv")]) == 1
    assert "missing.csv" in capfd.readouterr().err
