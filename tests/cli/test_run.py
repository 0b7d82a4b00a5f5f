"""`orion run` and `orion top` from the command line: real processes, a real agent, the simulated GPU."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from orion.cli import agents, launching, slot_choice
from orion.errors import NotFound
from orion.node_agent.api import agent_pb2
from orion.node_agent.api.address import listening_process
from tests.cli.conftest import IDLE
from tests.cli.orion_command import ORION, StartClient, end, orion, run
from tests.waiting import DEADLINE, eventually


def test_the_program_gets_its_arguments_and_gives_its_status(root: Path) -> None:
    done = run(root, "--priority", "be", program=("sh", "-c", 'echo "$0 $1"; exit 7', "--json", "two words"))
    assert done.returncode == 7, done.stderr
    assert done.stdout == "--json two words\n"


def test_the_program_ignores_and_blocks_the_signals_that_it_would_without_the_command(root: Path) -> None:
    program = ("grep", "Sig[BI]", "/proc/self/status")
    alone = subprocess.run(program, capture_output=True, text=True, check=True).stdout
    assert run(root, "--priority", "be", program=program).stdout == alone


def test_a_program_that_a_signal_ends_is_reported(root: Path) -> None:
    assert run(root, "--priority", "be", program=("sh", "-c", "kill -TERM $$")).returncode == -signal.SIGTERM


def test_the_environment_is_that_of_a_client(root: Path) -> None:
    script = 'echo "$LD_PRELOAD"; echo "$LD_LIBRARY_PATH"; ls "$ORION_ROOT/slots"; ls "$ORION_ROOT"/slots/*'
    done = run(root, "--priority", "hp", program=("sh", "-c", script))
    preload, library_path, gpu, *files = done.stdout.splitlines()
    assert preload.endswith("liborion_hook.so")
    assert library_path.split(":")[0].endswith("sim")
    assert gpu.startswith("GPU-")
    assert files == ["agent.sock", "notices.sock"]


def test_the_first_run_starts_an_agent_and_the_next_finds_it(root: Path) -> None:
    assert "started an agent" in run(root, "--priority", "be").stderr
    assert run(root, "--priority", "be").stderr == ""
    assert (root / "agent.log").exists()


def test_the_agent_takes_no_module_from_the_folder_in_which_it_is_started(root: Path, tmp_path: Path) -> None:
    (tmp_path / "queue.py").write_text("raise SystemExit('not the queue of the standard library')")
    command = [sys.executable, "-P", *ORION[1:], "run", "--simulated", "--root", str(root), "--priority", "be", "true"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode == 0, done.stderr
    assert "INFO agent: serves" in (root / "agent.log").read_text()


def test_the_agent_stays_in_no_folder_of_the_user(root: Path, tmp_path: Path) -> None:
    command = [*ORION, "run", "--simulated", "--root", str(root), "--priority", "be", "true"]
    environment = {**os.environ, "ORION_SIM_STATE": "machine"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode == 0, done.stderr
    assert os.readlink(f"/proc/{listening_process(root)}/cwd") == "/"
    assert list((tmp_path / "machine").iterdir())


def test_many_at_once_start_one_agent(root: Path) -> None:
    command = [*ORION, "run", "--simulated", "--root", str(root), "--priority", "be", "--", "true"]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    errors = [process.communicate(timeout=DEADLINE)[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * 4, errors
    assert sum("started an agent" in each for each in errors) == 1


def test_a_client_is_seen_by_top_and_its_slot_ends_with_it(root: Path, client: StartClient) -> None:
    process = client("--priority", "be", "--memory", "1GiB")

    def seen() -> list[int]:
        shown = json.loads(orion("top", "--json", "--root", root).stdout or '{"gpus": []}')  # no agent yet
        return [each["process_id"] for gpu in shown["gpus"] for slot in gpu["slots"] for each in slot["clients"]]

    eventually(lambda: seen() == [process.pid])
    picture = orion("top", "--once", "--root", root)
    assert picture.returncode == 0, picture.stderr
    for word in ("be-0", str(process.pid), "/1.0G", "Simulated GPU"):
        assert word in picture.stdout
    end(process)
    eventually(lambda: not any(slot.role == 2 for gpu in agents.ask(root).gpus for slot in gpu.slots))


def test_a_second_hp_process_learns_who_holds_the_slot(root: Path, client: StartClient) -> None:
    first = client("--priority", "hp")
    second = run(root, "--priority", "hp")
    assert second.returncode == 1
    assert f"process {first.pid}" in second.stderr
    assert "--priority be" in second.stderr
    assert run(root, "--priority", "be").returncode == 0


def test_a_held_hp_slot_of_one_gpu_of_several_names_the_option_for_the_others(
    root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ORION_SIM_STATE", str(tmp_path))
    monkeypatch.setenv("ORION_SIM_GPUS", "2")
    command = [*ORION, "run", "--simulated", "--root", str(root), "--priority", "hp", "--", "cat"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        eventually(lambda: (root / "run" / str(first.pid)).exists())
        second = run(root, "--priority", "hp")
        assert "name another GPU with --gpu" in second.stderr
        assert first.stdin is not None
        first.stdin.close()


def test_an_agent_without_gpus_has_to_be_stopped_before_another_run_can_help() -> None:
    with pytest.raises(NotFound, match="`orion stop`"):
        slot_choice.choose_gpus(agent_pb2.Snapshot(), "all")


def test_the_hp_slot_is_free_again_after_its_client(root: Path) -> None:
    for _ in range(3):
        assert run(root, "--priority", "hp").returncode == 0


def test_a_program_holds_the_hp_slot_before_it_uses_the_gpu_and_no_longer_when_it_has_ended(root: Path) -> None:
    command = [*ORION, "run", "--simulated", "--root", str(root), "--priority", "hp", "--"]
    command += ["sh", "-c", "echo ready; read x"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdin is not None
        assert first.stdout is not None
        assert first.stdout.readline() == "ready\n"
        assert f"the hp slot of GPU 0 is held by process {first.pid} (sh)" in run(root, "--priority", "hp").stderr
        first.stdin.close()
        os.waitid(os.P_PID, first.pid, os.WEXITED | os.WNOWAIT)  # it remains a zombie
        assert run(root, "--priority", "hp").returncode == 0


def test_a_later_process_with_the_same_id_does_not_hold_the_hp_slot(root: Path) -> None:
    run(root, "--priority", "be")
    (gpu,) = agents.ask(root).gpus
    (slot,) = (slot for slot in gpu.slots if slot.role == agent_pb2.HP)
    launching.make_client_root(
        root, os.getpid(), {gpu.uuid: slot.directory}
    )  # as an ended process with this id left it
    done = run(root, "--priority", "hp")
    assert done.returncode == 0, done.stderr


def test_a_child_that_outlives_its_program_keeps_the_folder_that_its_own_children_need(root: Path) -> None:
    command = [*ORION, "run", "--simulated", "--root", str(root), "--priority", "be", "--", "sh", "-c"]
    command += ['echo "$ORION_ROOT"; exec 3<&0; "$@" <&3 & wait', "sh", sys.executable, "-c", IDLE]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        folder = Path(program.stdout.readline().strip())
        assert program.stdout.readline() == "ready\n"
        eventually(lambda: any(slot.clients for gpu in agents.ask(root).gpus for slot in gpu.slots))
        program.kill()
        program.wait()
        assert run(root, "--priority", "be").returncode == 0
        assert list((folder / "slots").iterdir())
    eventually(lambda: not any(slot.role == agent_pb2.BE for gpu in agents.ask(root).gpus for slot in gpu.slots))
    run(root, "--priority", "be")
    assert not folder.exists()


def test_a_missing_gpu_is_named_with_the_existing_ones(root: Path) -> None:
    done = run(root, "--priority", "be", "--gpu", "7")
    assert done.returncode == 2
    assert "'7'" in done.stderr
    assert "0 (GPU-" in done.stderr


def test_a_program_may_start_without_a_standard_output(root: Path) -> None:
    command = [*ORION, "run", "--simulated", "--root", str(root), "--priority", "be", "--", "true"]
    done = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", *command], stderr=subprocess.PIPE, timeout=DEADLINE)
    assert done.returncode == 0, done.stderr


def test_a_root_that_cannot_be_created_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = run(tmp_path / "file", "--priority", "be")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [["run", "--priority", "be", "true"], ["top"], ["stop"], ["doctor", "--simulated"]],
    ids=lambda arguments: arguments[0],
)
def test_a_folder_of_another_user_is_a_sentence_with_a_next_step(arguments: list[str], root: Path) -> None:
    folder = root / "another"
    folder.mkdir(0o700)
    os.chown(folder, 12_345, 12_345)
    command, *rest = arguments
    line = [
        "setpriv",
        "--bounding-set",
        "-dac_override,-dac_read_search",
        *ORION,
        command,
    ]  # what a user cannot, either
    done = subprocess.run(
        [*line, "--root", str(folder / "agent"), *rest], capture_output=True, text=True, timeout=DEADLINE
    )
    assert done.returncode == 1
    assert "give another --root" in " ".join((done.stdout + done.stderr).split())


def test_an_agent_that_does_not_answer_is_named_and_no_second_one_is_started(
    root: Path, silent_agent: subprocess.Popen[str]
) -> None:
    for options in (["--priority", "be"], ["--id", "a"]):
        done = run(root, *options)
        assert done.returncode == 1
        assert f"the agent at {root}/agent.sock (process {silent_agent.pid}) does not answer" in done.stderr
        assert "started" not in done.stderr


def test_a_program_in_another_pid_namespace_is_refused(root: Path) -> None:
    run(root, "--priority", "be")
    command = ["unshare", "--pid", "--fork", *ORION, "run", "--root", str(root), "--priority", "hp", "--", "true"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode == 1
    assert "another container" in done.stderr


def test_top_without_an_agent_names_the_command_to_start_one(tmp_path: Path) -> None:
    done = orion("top", "--root", tmp_path)
    assert done.returncode == 1
    assert "orion agent" in done.stderr


def test_top_says_in_a_sentence_that_the_agent_has_ended(root: Path) -> None:
    run(root, "--priority", "be")
    command = [*ORION, "top", "--root", str(root), "--interval", "0.1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        os.kill(agents.ask(root).agent_process_id, signal.SIGKILL)
        _, errors = process.communicate(timeout=DEADLINE)
    assert process.returncode == 1
    assert errors == f"orion: no agent listens at {root}/agent.sock; start one with `orion agent --root {root}`\n"


def test_ctrl_c_ends_top_quietly(root: Path) -> None:
    run(root, "--priority", "be")
    command = [*ORION, "top", "--root", str(root), "--interval", "0.1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=DEADLINE)
    assert process.returncode == 130
    assert errors == ""


def test_sigterm_leaves_the_terminal_as_top_found_it(root: Path) -> None:
    run(root, "--priority", "be")
    ours, theirs = os.openpty()
    command = [*ORION, "top", "--root", str(root), "--interval", "0.1"]
    with subprocess.Popen(command, stdout=theirs, env=os.environ | {"TERM": "xterm"}) as process:
        os.close(theirs)
        shown = b""
        while b"GPU 0" not in shown:
            shown += os.read(ours, 4096)
        process.terminate()
        with contextlib.suppress(OSError):  # EIO: nobody has the other end any more
            while more := os.read(ours, 4096):
                shown += more
    os.close(ours)
    assert process.returncode == 128 + signal.SIGTERM
    assert shown.count(b"\x1b[?1049h") == shown.count(b"\x1b[?1049l") == 1
