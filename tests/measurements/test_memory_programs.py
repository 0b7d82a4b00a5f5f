"""Programs that nobody changes leave a simulated GPU and come back: `measurements.memory.programs`."""

import shlex
import sys
from pathlib import Path

import pytest

from measurements.memory import programs
from orion.bench import raw_data
from orion.errors import Unavailable

HOLDS = """
import ctypes, sys, time
cuda = ctypes.CDLL("libcuda.so.1")
device, context, at = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
cuda.cuInit(0)
cuda.cuDeviceGet(ctypes.byref(device), 0)
cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
cuda.cuCtxSetCurrent(context)
assert cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(16 << 20)) == 0
cuda.cuMemcpyHtoD_v2(at, b"kept", ctypes.c_size_t(4))
found, end = ctypes.create_string_buffer(4), time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    cuda.cuMemcpyDtoH_v2(found, at, ctypes.c_size_t(4))
sys.exit(found.raw != b"kept")
"""


def test_programs_leave_and_come_back_and_their_figures_are_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program, output = tmp_path / "holds.py", tmp_path / "raw.json"
    program.write_text(HOLDS)
    words = [f"{name}={shlex.join([sys.executable, str(program), '3'])}" for name in ("one", "two")]
    words += ["short=true", "--limit-mib", "512", "--away", "1", "--here-s", "1", "--away-s", "0.1"]
    assert programs.main([*words, "--simulated", "--output", str(output)]) == 0
    found = {each["name"]: each for each in raw_data.read(output)["programs"]}
    assert [found[name]["status"] for name in ("one", "two", "short")] == [0, 0, 0]
    assert len(found["one"]["changes"]) == len(found["two"]["changes"]) == 1
    assert found["short"]["changes"] == []
    assert "one: status 0, 0 of 512 MiB; out " in capsys.readouterr().out


def test_a_program_that_fails_makes_the_command_fail(tmp_path: Path) -> None:
    words = ["fails=false", "--limit-mib", "64", "--output", str(tmp_path / "raw.json"), "--simulated"]
    assert programs.main(words) == 1


def test_a_measurement_that_fails_leaves_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[programs.Program] = []

    def fails(_: object, running: list[programs.Program], __: bool) -> dict[str, float]:
        started.extend(running)
        raise Unavailable("the agent does not answer")

    monkeypatch.setattr(programs, "change", fails)
    words = ["one=sleep 600", "two=sleep 600", "--limit-mib", "64", "--away", "1", "--here-s", "0.1"]
    assert programs.main([*words, "--simulated", "--output", str(tmp_path / "raw.json")]) == 1
    assert len(started) == 2
    assert not any(each.runs for each in started)


def test_a_program_without_a_name_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        programs.main(["gpu_burn", "--limit-mib", "64", "--output", str(tmp_path / "raw.json")])
    assert "NAME=COMMAND" in capsys.readouterr().err
