"""Wrong flags and values exit with 2 and one sentence that names the allowed ones. Also help and completion."""

import errno
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from orion.cli import agents
from orion.cli.main import main

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def orion(capsys: pytest.CaptureFixture[str]) -> Call:
    def call(*arguments: str) -> tuple[int, str, str]:
        status = main(list(arguments))
        output = capsys.readouterr()
        return status, output.out, output.err

    return call


@pytest.mark.parametrize(
    ("arguments", "named", "allowed"),
    [
        pytest.param(["run", "--prio", "hp", "--", "true"], "--prio", "--priority", id="unknown-flag"),
        pytest.param(["run", "--priority", "low", "--", "true"], "'low'", "'hp', 'be'", id="priority"),
        pytest.param(["run", "--priority", "hp"], "CMD", "orion run [OPTIONS] {CMD}...", id="no-program"),
        pytest.param(["run", "--", "true"], "--priority", "", id="no-priority"),
        pytest.param(
            ["run", "--priority", "be", "--memory", "8 potatoes", "--", "true"], "8 potatoes", "8GiB", id="size"
        ),
        pytest.param(["run", "--priority", "be", "--memory", "0", "--", "true"], "'0'", "from 1MiB", id="zero-size"),
        pytest.param(["run", "--root", "", "--priority", "be", "--", "true"], "--root", "a folder", id="run-no-root"),
        pytest.param(["stop", "--root", ""], "--root", "a folder", id="stop-no-root"),
        pytest.param(["top", "--interval", "0"], "--interval", "0.1", id="interval"),
        pytest.param(["top", "--interval", "soon"], "--interval", "number", id="interval-text"),
        pytest.param(["agent", "--gpus", "some"], "'some'", "'simulated'", id="gpus"),
        pytest.param(["agent", "--metrics-address", "nowhere"], "--metrics-address", "", id="metrics-address"),
        pytest.param(["agent", "--hp-slots", "-1"], "--hp-slots", "0", id="slots"),
        pytest.param(["agent", "--policy", "best"], "'best'", "'orion', 'gate'", id="policy"),
        pytest.param(["agent", "--max-slowdown", "0.9"], "--max-slowdown", "or equal to 1", id="slowdown"),
        pytest.param(["agent", "--request", "0.4"], "--request", "or equal to 0.5", id="request"),
        pytest.param(
            ["agent", "--longest-turn-ms", "1", "--shortest-turn-ms", "50"],
            "orion: the longest turn, 1 ms, is below the shortest, 50 ms",
            "raise the first",
            id="turns",
        ),
        pytest.param(["agent", "--node-name", "a"], "--operator is missing", "NAMESPACE/NAME", id="no operator"),
        pytest.param(["policy", "set", "0", "--sharing-cost", "x"], "--sharing-cost", "number", id="sharing-cost"),
        pytest.param(["policy", "set", "0"], "nothing to change", "policy set --help", id="no-change"),
        pytest.param(
            ["policy", "set", "--max-slowdown", "1.2"], "GPU", "orion policy set [OPTIONS] {GPU}", id="no-gpu"
        ),
        pytest.param(["explain", "pod", "examples/train.yaml"], "'examples/train.yaml'", "file with -f", id="file"),
        pytest.param(
            ["run", "--priority", "be", "--max-slowdown", "2", "--", "true"], "--max-slowdown", "--priority hp", id="be"
        ),
        pytest.param(
            ["run", "--priority", "hp", "--request", "0.9", "--", "true"], "--request", "orion policy set", id="hp"
        ),
        pytest.param(
            ["run", "--priority", "be", "--request", "0", "--", "true"], "--request", "from 0.001 to 1", id="no time"
        ),
        pytest.param(
            ["run", "--priority", "be", "--limit", "1.5", "--", "true"], "--limit", "from 0.001 to 1", id="two GPUs"
        ),
        pytest.param(
            ["run", "--priority", "be", "--request", "nan", "--", "true"], "--request", "from 0.001 to 1", id="NaN"
        ),
        pytest.param(
            ["run", "--priority", "be", "--request", "0.6", "--limit", "0.5", "--", "true"],
            "--request 0.6 is above --limit 0.5",
            "lower the request",
            id="order",
        ),
        pytest.param(["doctor", "--verbose"], "--verbose", "--json", id="doctor"),
        pytest.param(["doctr"], "doctr", "doctor", id="command"),
    ],
)
def test_a_wrong_option_or_value_is_named_in_one_sentence(
    orion: Call, arguments: list[str], named: str, allowed: str
) -> None:
    status, out, err = orion(*arguments)
    assert status == 2
    assert out == ""
    assert err.count("\n") == 1
    assert named in err
    assert allowed in err


def test_an_unknown_option_is_answered_with_the_options_that_help_shows(orion: Call) -> None:
    """The options of Gemini's launcher are accepted and hidden."""
    status, _, err = orion("run", "--prioritie", "hp", "--", "true")
    assert (status, "takes --priority, " in err, "--ipc" in err) == (2, True, False)


def test_a_command_that_is_meant_is_named_alone(orion: Call) -> None:
    assert orion("tpo") == (2, "", "orion: No such command 'tpo'. Did you mean 'top'?\n")


def test_help_teaches_the_first_steps(orion: Call) -> None:
    status, out, _ = orion("--help")
    assert status == 0
    for command in ("run", "top", "doctor", "demo", "agent", "policy"):
        assert command in out
    status, out, _ = orion("run", "--help")
    assert status == 0
    assert "orion run --priority hp -- python serve.py" in out


def test_the_help_lists_services_apart_from_user_commands(orion: Call) -> None:
    _, out, _ = orion("--help")
    panels = {part.split(" ", 2)[1]: part for part in out.split("╭─")[1:]}
    assert set(panels) == {"Options", "On", "Measure", "Plan", "Services"}
    assert re.findall(r"^│ ([a-z-]+) ", panels["Services"], re.MULTILINE) == [
        "agent", "device-plugin", "dra-driver", "mps-daemon", "operator", "webhook",
    ]  # fmt: skip
    assert not re.search(r"^│ (run|top|demo|explain) ", panels["Services"], re.MULTILINE)


def test_shells_complete_commands() -> None:
    environment = {**os.environ, "_ORION_COMPLETE": "complete_bash", "COMP_WORDS": "orion doc", "COMP_CWORD": "1"}
    program = "import sys; from orion.cli.main import main; sys.argv[0] = 'orion'; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["doctor"], done.stderr


def test_without_a_command_the_help_is_shown(orion: Call) -> None:
    _, out, err = orion()
    assert "Usage: orion" in out + err


def test_version(orion: Call) -> None:
    status, out, _ = orion("--version")
    assert status == 0
    assert out.startswith("orion 0")


def test_arguments_after_the_program_belong_to_it(orion: Call) -> None:
    status, _, err = orion("run", "--priority", "be", "no-such-program", "--json", "-x")
    assert status == 127
    assert "no-such-program" in err


def test_a_program_that_exists_but_cannot_be_executed_gives_the_status_of_a_shell(
    orion: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.sh").touch(mode=0o644)
    monkeypatch.setenv("PATH", str(tmp_path))
    for program in ("train.sh", str(tmp_path / "train.sh")):
        status, _, err = orion("run", "--priority", "be", program)
        assert status == 126
        assert err == f"orion: {tmp_path}/train.sh cannot be run: this user may not execute it (chmod +x)\n"
    status, _, err = orion("run", "--priority", "be", str(tmp_path))
    assert (status, err) == (126, f"orion: {tmp_path} cannot be run: it is a folder\n")


def test_a_full_disk_is_a_sentence(orion: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/run/orion/run.lock")

    monkeypatch.setattr(agents, "ask", full)
    status, _, err = orion("policy", "show")
    assert (status, err) == (1, "orion: /run/orion/run.lock: No space left on device: free some space\n")


def test_output_to_a_pipe_has_no_colours() -> None:
    done = subprocess.run([sys.executable, "-m", "orion.cli", "doctor"], capture_output=True, timeout=60)
    assert b"\x1b" not in done.stdout + done.stderr


def _doctor(output: int) -> tuple[int, bytes]:
    command = [sys.executable, "-m", "orion.cli", "doctor", "--simulated", "--json"]
    buffered = os.environ | {"PYTHONUNBUFFERED": ""}  # as for most users
    done = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, env=buffered, timeout=60)
    return done.returncode, done.stderr


def test_an_output_that_is_full_is_one_sentence() -> None:
    with open("/dev/full", "wb") as full:
        assert _doctor(full.fileno()) == (1, b"orion: No space left on device: free some space\n")


def test_an_output_that_nobody_reads_any_more_is_a_failure_without_a_word() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        assert _doctor(writer) == (1, b"")
    finally:
        os.close(writer)


def test_a_character_that_the_terminal_lacks_is_replaced() -> None:
    program = (
        "import sys; from orion.cli import commands, main; commands.run_line = lambda _: print(chr(0x2026)) or 0; "
    )
    done = subprocess.run(
        [sys.executable, "-c", program + "sys.exit(main.main())"],
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
        capture_output=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"?\n", b"")
