"""The demo, on the simulated GPU with real processes, and its table and picture."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from orion.bench import demo, demo_picture
from orion.bench.demo_phases import Outcome, Phase
from orion.bench.workload import Span
from tests.bench.temporary_folders import folders
from tests.processes import children, is_running
from tests.waiting import eventually

PNG = b"\x89PNG\r\n\x1a\n"


def an_outcome() -> Outcome:
    spans: list[Span] = [(1.0 + 0.01 * number, 1.004 + 0.01 * number) for number in range(10)]
    phases = [
        Phase("alone", [4.0] * 198 + [10.0] * 2),
        Phase("unmanaged", [8.0] * 198 + [50.0] * 2, 160.0, "steps", spans, spans),
        Phase("orion", [4.0] * 198 + [10.5] * 2, 152.0, "steps", spans, spans),
    ]
    return Outcome("A GPU", True, 85.0, [1.0 + 0.01 * number for number in range(200)], (1.0, 1.1), phases)


def test_hp_is_compared_with_alone_and_be_with_unmanaged() -> None:
    results = demo.to_json(an_outcome())
    alone, unmanaged, orion = results["phases"]
    assert alone == {
        "name": "alone",
        "hp": {"requests": 200, "p50_ms": 4.0, "p95_ms": 4.0, "p99_ms": alone["hp"]["p99_ms"], "ratio_p99": 1.0},
        "be": {"per_second": 0, "ratio": None},
    }
    assert unmanaged["be"]["ratio"] == 1.0
    assert orion["be"] == {"per_second": 152.0, "ratio": 0.95}
    assert orion["hp"]["ratio_p99"] < unmanaged["hp"]["ratio_p99"]


def test_a_picture_is_drawn(tmp_path: Path) -> None:
    demo_picture.draw(an_outcome(), tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(PNG)


def test_figures_are_shown_also_if_the_picture_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "full.png").symlink_to("/dev/full")
    monkeypatch.setattr(demo, "_run_with_progress", lambda *_: an_outcome())
    assert demo.main(["--simulated", "--json", "--output", str(tmp_path / "full.png")]) == 1
    said = capsys.readouterr()
    assert json.loads(said.out)["gpu"] == "A GPU"
    assert said.err == f"orion demo: {tmp_path}/full.png cannot be written: No space left on device\n"


def test_spans_with_short_gaps_are_joined() -> None:
    spans = [(0.0, 0.002), (0.00201, 0.004), (0.01, 0.02), (0.09, 0.2), (0.3, 0.4)]
    assert demo_picture.merged(spans, (0.001, 0.1)) == [(0.001, 0.004), (0.01, 0.02), (0.09, 0.1)]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        pytest.param(["--rate", "x"], "argument --rate: invalid float value: 'x'", id="no number"),
        pytest.param(["--simulated", "--seconds", "-1"], "--seconds -1: it must be a positive number", id="negative"),
        pytest.param(["--simulated", "--rate", "nan"], "--rate nan: it must be a positive number", id="nan"),
        pytest.param(["--wrong"], "--wrong", id="unknown option"),
        pytest.param(["--simulated", "--seconds", "0.5"], "rate x seconds must be at least", id="too few requests"),
        pytest.param(["--simulated", "--output", "/nowhere/x.png"], "--output /nowhere/x.png", id="no folder"),
        pytest.param(["--simulated", "--output", "x.pdf"], "--output x.pdf", id="no picture"),
    ],
)
def test_a_wrong_argument_is_rejected_in_one_sentence(
    words: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status = demo.main(words)
    except SystemExit as ended:
        status = int(ended.code or 0)
    assert status == 2
    said = capsys.readouterr().err
    assert named in said
    assert said.count("\n") == 1


def started(picture: Path, *words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "orion.bench.demo", "--simulated", "--output", str(picture), *words]
    # Restores SIGINT's default action: if the shell runs this test in the background, the demo would ignore Ctrl-C.
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip


@pytest.mark.quiet
def test_the_whole_demo_shows_orion_between_alone_and_unmanaged(tmp_path: Path) -> None:
    process = started(tmp_path / "picture.png", "--json", "--seconds", "1.5")
    out, errors = process.communicate(timeout=100)
    assert process.returncode == 0, errors.decode()
    results = json.loads(out)
    assert out.count(b"\n") == 1
    assert results["simulated"] is True
    assert [phase["name"] for phase in results["phases"]] == ["alone", "unmanaged", "orion"]
    _, unmanaged, orion = results["phases"]
    assert all(phase["hp"]["requests"] >= 100 for phase in results["phases"])
    assert orion["hp"]["p99_ms"] < unmanaged["hp"]["p99_ms"]
    assert orion["be"]["per_second"] > 0
    assert (tmp_path / "picture.png").read_bytes().startswith(PNG)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=["Ctrl-C", "TERM", "KILL"])
def test_nothing_outlives_an_interrupted_demo(number: signal.Signals, tmp_path: Path) -> None:
    process = started(tmp_path / "picture.png", "--seconds", "1.5")

    def processes_of_the_last_phase() -> set[int]:
        assert process.poll() is None
        found = children(process.pid)
        return found if len(found) >= 3 else set()  # the agent and the two workers

    processes = eventually(processes_of_the_last_phase)
    used = set().union(*map(folders, processes))
    assert len(used) >= 2  # the agent's root and the simulated machine
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode == (-signal.SIGKILL if number == signal.SIGKILL else 130)
    eventually(lambda: not any(map(is_running, processes)))
    if number == signal.SIGKILL:  # a killed demo cannot remove its folders
        for folder in used:
            shutil.rmtree(folder, ignore_errors=True)
    assert not any(folder.exists() for folder in used)
