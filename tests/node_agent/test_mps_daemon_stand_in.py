"""`orion mps-daemon` as a process, with a replacement of NVIDIA's control daemon: the simulated one, or a script.

tests/gpu/test_gpu_mps_in_pods.py tests NVIDIA's own control daemon on a GPU.
"""

import os
import signal
import subprocess

import pytest

from orion.node_agent.mps.folder import Phase, State, Wanted
from tests.node_agent.mps_daemon import GPU, OTHER, SERVES, MpsDaemon
from tests.processes import is_running
from tests.waiting import DEADLINE, eventually


def test_a_stand_in_runs_for_each_gpu_that_is_wanted_and_no_other(daemon: MpsDaemon) -> None:
    daemon.start()
    assert daemon.state() is None
    for uuid in (GPU, OTHER):
        daemon.folder.want(uuid, Wanted(simulated=True))
    first, second = daemon.until(Phase.RUNNING), daemon.until(Phase.RUNNING, OTHER)
    assert first is not None
    assert second is not None
    assert first.process_id != second.process_id
    assert (daemon.folder.pipe(GPU) / "control_privileged").is_socket()
    assert [each.name for each in daemon.folder.clients(GPU).iterdir()] == ["control"]
    daemon.folder.want(GPU, None)
    daemon.until(None)
    assert list(daemon.folder.pipe(GPU).iterdir()) == list(daemon.folder.clients(GPU).iterdir()) == []
    assert not is_running(first.process_id)
    assert is_running(second.process_id)


def test_a_stand_in_that_dies_is_reported_and_started_again(daemon: MpsDaemon) -> None:
    daemon.start()
    daemon.folder.want(GPU, Wanted(simulated=True))
    before = daemon.until(Phase.RUNNING)
    assert before is not None
    os.kill(before.process_id, signal.SIGKILL)
    # Do not wait for FAILED: that phase lasts only half a second.
    eventually(lambda: (now := daemon.state()) is not None and now.failures and now.process_id, "it runs again")
    after = daemon.until(Phase.RUNNING)
    assert after is not None
    assert after.failures == 1
    assert after.since > before.since
    assert f"{GPU}: nvidia-cuda-mps-control ended by signal 9" in daemon.log


def test_missing_programs_are_reported_and_found_later(daemon: MpsDaemon) -> None:
    daemon.start("--driver-root", "/nowhere")
    daemon.folder.want(GPU, Wanted())
    failed = daemon.until(Phase.FAILED)
    assert failed is not None
    assert "there is no nvidia-cuda-mps-control in PATH or below /nowhere" in failed.message
    daemon.write_program(SERVES)
    daemon.until(Phase.RUNNING)


def test_a_stand_in_that_refuses_the_option_of_several_users_runs_without_it(daemon: MpsDaemon) -> None:
    daemon.write_program(f'[ "$2" = "" ] || {{ echo "invalid option $2"; exit 1; }}; {SERVES}')
    daemon.start()
    daemon.folder.want(GPU, Wanted())
    state = daemon.until(Phase.RUNNING)
    assert state is not None
    assert not state.several_users
    starts = [line for line in daemon.arguments.read_text().splitlines() if line.startswith("-f")]
    assert starts == (["-f -multiuser-server", "-f"] if os.geteuid() == 0 else ["-f"])


def test_a_stand_in_that_fails_for_another_reason_keeps_the_option_of_several_users(daemon: MpsDaemon) -> None:
    once = daemon.root / "failed"
    daemon.write_program(f'[ -e {once} ] || {{ touch {once}; echo "device busy"; exit 1; }}; {SERVES}')
    daemon.start()
    daemon.folder.want(GPU, Wanted())
    state = daemon.until(Phase.RUNNING)
    assert state is not None
    assert state.failures == 1
    assert state.several_users == (os.geteuid() == 0)


def test_the_output_of_a_stand_in_that_does_not_start_is_reported(daemon: MpsDaemon) -> None:
    daemon.write_program('echo "An instance of this daemon is already running" >&2; exit 1')
    daemon.start()
    daemon.folder.want(GPU, Wanted())
    failed = daemon.until(Phase.FAILED)
    assert failed is not None
    assert "ended with status 1: An instance of this daemon is already running" in failed.message
    eventually(lambda: (now := daemon.state()) is not None and now.failures > 2, "it tries again")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_daemons_end_ends_the_stand_ins_and_invalidates_its_states(
    daemon: MpsDaemon, number: signal.Signals
) -> None:
    daemon.start()
    daemon.folder.want(GPU, Wanted(simulated=True))
    state = daemon.until(Phase.RUNNING)
    assert state is not None
    assert daemon.end(number) == (0 if number is signal.SIGTERM else -signal.SIGKILL)
    assert not daemon.folder.daemon_lives()
    assert daemon.state() is None
    eventually(lambda: not is_running(state.process_id), "the control daemon has ended")
    daemon.start()  # the agent's request still exists
    after = daemon.until(Phase.RUNNING)
    assert after is not None
    assert after.process_id != state.process_id


def test_a_root_has_one_daemon_and_the_next_one_waits_for_it(daemon: MpsDaemon) -> None:
    daemon.start()
    with subprocess.Popen(daemon.command, stderr=subprocess.PIPE, text=True) as second:
        assert second.stderr is not None
        assert daemon.end() == 0
        assert "mps: follows" in second.stderr.readline()
        assert daemon.folder.daemon_lives()
        second.terminate()
        second.communicate(timeout=DEADLINE)
    assert not daemon.folder.daemon_lives()


def test_a_waiting_daemon_ends_on_a_signal(daemon: MpsDaemon) -> None:
    daemon.start()
    with subprocess.Popen(daemon.command, stderr=subprocess.PIPE, text=True) as second:
        assert second.stderr is not None
        assert "mps: waits" in second.stderr.readline()
        second.terminate()
        assert second.wait(DEADLINE) == 0
    assert daemon.folder.daemon_lives()


def test_an_invalid_file_ends_no_daemon(daemon: MpsDaemon) -> None:
    daemon.start()
    daemon.folder.want(GPU, Wanted(simulated=True))
    daemon.until(Phase.RUNNING)
    (daemon.root / "mps" / "not-a-gpu").mkdir()
    (daemon.root / "mps" / "not-a-gpu" / "wanted").write_text("{}")
    daemon.folder.make(OTHER)
    (daemon.folder.gpu(OTHER) / "wanted").write_text('{"simulated": tr')
    failed = daemon.until(Phase.FAILED, OTHER)
    assert failed is not None
    assert "nvidia-cuda-mps-control" in failed.message
    assert daemon.until(Phase.RUNNING) is not None
    (daemon.folder.gpu(OTHER) / "state").write_text("{}")
    assert "cannot be read" in (daemon.folder.state(OTHER) or State(Phase.RUNNING, 0)).message
