"""`orion profile` from end to end: a real program, the real library, a fake CUPTI (hook/test/fake_cupti.c)."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from orion.cli.main import main
from orion.crds.profile import GPUProfile
from orion.crds.profile_file import parse_profile
from tests.waiting import eventually

DEADLINE = 30.0
ADD = "_Z3addPi"


@pytest.fixture
def machine(c_build: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with the fake CUPTI, and the program to profile."""
    monkeypatch.setattr("orion.hook.profiler", lambda: c_build / "liborion_profiler.so")
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{c_build / 'sim'}:{c_build / 'test' / 'fake_cupti'}")
    monkeypatch.setenv("ORION_SIM_STATE", str(tmp_path / "sim"))
    monkeypatch.delenv("CUDA_INJECTION64_PATH", raising=False)
    monkeypatch.chdir(tmp_path)
    return c_build / "test" / "client_profiled"


@pytest.fixture
def profile(machine: Path, tmp_path: Path) -> Callable[..., int]:
    """Runs `orion profile kernels OPTIONS -- PROGRAM` with lines for the program's standard input."""

    def run(*options: str, lines: tuple[str, ...]) -> int:
        script = tmp_path / "lines"
        script.write_text("\n".join([*lines, ""]))
        return main(["profile", "kernels", *options, "--", "sh", "-c", f'"{machine}" < lines > answers'])

    return run


def _read(path: Path) -> GPUProfile:
    return parse_profile(path.read_text(), str(path))


def test_a_profile_is_written_and_shown(
    profile: Callable[..., int], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    status = profile(
        "-o",
        "profile.yaml",
        lines=(f"kernel {ADD} 400 1 1 256 1 1 512 1024 32 5000 90", "kernel b 4 1 1 64 1 1 0 0 16 50000"),
    )
    assert status == 0
    written = _read(tmp_path / "profile.yaml")
    assert written.metadata.name == "profile"
    assert (written.spec.gpu.sms, written.spec.gpu.compute_capability) == (132, "9.0")
    add, other = written.spec.kernels
    assert (add.name, add.mangled_name) == ("add(int*)", ADD)
    assert (add.sms_needed, add.sms_needed_uncapped) == (50, 50)
    assert add.duration_ns.median == pytest.approx(5000, rel=0.02)
    assert (add.total_share, other.total_share) == (0.9, 0.1)
    assert add.shared_memory is not None
    assert (add.shared_memory.static, add.shared_memory.dynamic, add.registers, add.launches) == (512, 1024, 32, 90)
    capfd.readouterr()
    assert main(["profile", "show", "profile.yaml"]) == 0
    shown = capfd.readouterr().out
    for word in ("add", "90.0%", "5 us", "50", "unknown", "132 SMs"):
        assert word in shown


def test_the_programs_status_is_passed_through(profile: Callable[..., int]) -> None:
    assert profile(lines=("kernel a 1 1 1 32 1 1 0 0 16 5000", "exit 42")) == 42


def test_more_blocks_than_fit_are_several_waves(profile: Callable[..., int], tmp_path: Path) -> None:
    profile("-o", "profile.yaml", lines=("kernel a 5280 1 1 256 1 1 0 0 32 5000",))
    (kernel,) = _read(tmp_path / "profile.yaml").spec.kernels
    assert (kernel.sms_needed, kernel.sms_needed_uncapped) == (132, 660)


def test_processes_are_merged_with_a_warning(
    profile: Callable[..., int], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    profile("-o", "profile.yaml", lines=("kernel child_kernel 1 1 1 32 1 1 0 0 16 4000 3", "spawn"))
    written = _read(tmp_path / "profile.yaml")
    assert [(kernel.name, kernel.launches) for kernel in written.spec.kernels] == [("child_kernel", 4)]
    assert written.spec.source.processes == 2
    assert "2 processes" in capfd.readouterr().err


def test_without_a_kernel_there_is_a_sentence_and_status_3(
    profile: Callable[..., int], capfd: pytest.CaptureFixture[str]
) -> None:
    assert profile(lines=("exit 0",)) == 3
    assert "it launched none" in capfd.readouterr().err


def test_a_program_without_cuda_has_its_own_message(machine: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "kernels", "--", "true"]) == 3
    assert "never initialised" in capfd.readouterr().err


def test_a_program_that_fails_without_kernels_keeps_its_status(
    machine: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["profile", "kernels", "--", "sh", "-c", "exit 9"]) == 9
    assert "status 9" in capfd.readouterr().err


def test_a_conflict_between_profilers_is_the_reason(
    profile: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_CUPTI_SUBSCRIBE", "39")
    assert profile(lines=("kernel a 1 1 1 32 1 1 0 0 16 5000",)) == 3
    assert "another profiler" in capfd.readouterr().err


def test_an_injection_that_is_already_set_is_rejected(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CUDA_INJECTION64_PATH", "/opt/other.so")
    assert main(["profile", "kernels", "--", "true"]) == 1
    assert "/opt/other.so" in capfd.readouterr().err


def test_without_counters_classes_are_unknown_with_a_reason(
    profile: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert profile("--counters", "-o", "profile.yaml", lines=("kernel a 1 1 1 32 1 1 0 0 16 5000",)) == 0
    assert (
        "hardware counters are not available, so classes are unknown: ncu (Nsight Compute) is not on"
        in capfd.readouterr().err
    )
    (kernel,) = _read(tmp_path / "profile.yaml").spec.kernels
    assert (kernel.kernel_class.value, len(kernel.identity or "")) == ("unknown", 16)
    assert main(["profile", "kernels", "--counters", "--ncu", "x.csv", "--", "true"]) == 2


def test_a_missing_program_is_status_127(machine: Path) -> None:
    assert main(["profile", "kernels", "--", "no-such-program-anywhere"]) == 127


def test_orions_file_has_one_row_per_launch_in_launch_order(profile: Callable[..., int], tmp_path: Path) -> None:
    lines = (
        "kernel a 264 1 1 1024 1 1 0 0 32 5000 2",
        "kernel b 1 1 1 32 1 1 0 0 16 7000",
        "kernel a 264 1 1 1024 1 1 0 0 32 6000",
    )
    profile("--csv", "out.csv", lines=lines)
    assert (tmp_path / "out.csv").read_text().splitlines() == [
        "Name,Profile,Memory_footprint,SM_usage,Duration",
        "a,-1,0,132,5000",
        "a,-1,0,132,5000",
        "b,-1,0,1,7000",
        "a,-1,0,132,6000",
    ]


def test_orions_file_is_bounded_with_a_warning(
    profile: Callable[..., int], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    profile("--csv", "out.csv", "--csv-launches", "3", lines=("kernel a 1 1 1 32 1 1 0 0 16 5000 10",))
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 4
    assert "10 launches" in capfd.readouterr().err


def test_orions_file_may_have_one_row_per_kernel(profile: Callable[..., int], tmp_path: Path) -> None:
    profile("--csv", "out.csv", "--csv-per-kernel", lines=("kernel a 1 1 1 32 1 1 0 0 16 5000 10",))
    assert (tmp_path / "out.csv").read_text().splitlines()[1:] == ["a,-1,0,1,5000"]


def test_classes_come_from_a_report_and_unknown_kernels_are_counted(
    profile: Callable[..., int], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "report.csv").write_text(
        '"ID","Kernel Name","Block Size","Grid Size","sm__throughput.avg.pct_of_peak_sustained_elapsed",'
        '"gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"\n'
        '"","","","","%","%"\n'
        '"0","add(int *)","(256, 1, 1)","(4, 1, 1)","91.5","12.0"\n'
    )
    lines = (f"kernel {ADD} 4 1 1 256 1 1 0 0 32 5000", "kernel b 1 1 1 32 1 1 0 0 16 400")
    profile("-o", "profile.yaml", "--ncu", "report.csv", lines=lines)
    assert [kernel.kernel_class.value for kernel in _read(tmp_path / "profile.yaml").spec.kernels] == [
        "compute",
        "unknown",
    ]
    assert "1 of 2 kernels are not in the report" in capfd.readouterr().err


def test_classify_adds_classes_from_a_later_report(profile: Callable[..., int], tmp_path: Path) -> None:
    profile("-o", "profile.yaml", lines=("kernel b 1 1 1 32 1 1 0 0 16 400",))
    (tmp_path / "report.csv").write_text(
        '"ID","Kernel Name","dram__throughput.avg.pct_of_peak_sustained_elapsed"\n"","","%"\n"0","b","80"\n'
    )
    assert main(["profile", "classify", "profile.yaml", "--ncu", "report.csv"]) == 0
    assert _read(tmp_path / "profile.yaml").spec.kernels[0].kernel_class.value == "memory"


def test_a_signal_reaches_the_program_and_the_profile_is_kept(machine: Path, c_build: Path, tmp_path: Path) -> None:
    code = (
        "import sys, orion.hook, pathlib\n"
        "orion.hook.profiler = lambda: pathlib.Path(sys.argv[1])\n"
        "from orion.cli.main import main\n"
        "sys.exit(main(['profile', 'kernels', '-o', 'profile.yaml', '--', sys.argv[2]]))\n"
    )
    command = [sys.executable, "-c", code, str(c_build / "liborion_profiler.so"), str(machine)]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("kernel a 1 1 1 32 1 1 0 0 16 5000 3\n")
    process.stdin.flush()
    assert process.stdout.readline() == "ok\n"
    written = "orion-profile-*/process-*.jsonl"
    eventually(lambda: any('"launches":3,' in path.read_text() for path in tmp_path.glob(written)), "a file")
    process.send_signal(signal.SIGTERM)
    process.wait(DEADLINE)  # stdin stays open, because the program also ends when its stdin ends
    _, said = process.communicate(timeout=DEADLINE)
    assert process.returncode == 128 + signal.SIGTERM, said
    assert _read(tmp_path / "profile.yaml").spec.kernels[0].launches == 3
    assert "did not end by themselves" in said


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "the document"),
        ("kind: [", "expected YAML"),
        ("kind: GPUShare\n", "apiVersion|kind|metadata"),
    ],
)
def test_show_names_file_and_line(tmp_path: Path, capfd: pytest.CaptureFixture[str], text: str, expected: str) -> None:
    (tmp_path / "bad.yaml").write_text(text)
    assert main(["profile", "show", str(tmp_path / "bad.yaml")]) == 1
    said = capfd.readouterr().err
    assert f"{tmp_path / 'bad.yaml'}:" in said
    assert any(word in said for word in expected.split("|"))
    assert said.count("\n") == 1


def test_show_of_a_missing_file_is_one_sentence(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "show", str(tmp_path / "nothing.yaml")]) == 1
    assert "No such file" in capfd.readouterr().err
