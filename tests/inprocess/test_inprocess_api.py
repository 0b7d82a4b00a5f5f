"""`orion.inprocess` in real programs with the hook preloaded, on the simulated GPU."""

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from orion.inprocess import Client, Scheduler, scheduler
from tests.hook.harness import Machine

PROGRAM = Path(__file__).with_name("threads_program.py")
SECONDS = 80


def run(environment: dict[str, str], what: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(PROGRAM), what], env=environment, capture_output=True, text=True, timeout=SECONDS
    )


@pytest.mark.parametrize(
    "what",
    [
        "be_waits_for_hp",
        "a_budget_releases_waiting_launches",
        "nested_bindings",
        "outlived_bindings",
        "wrong_arguments",
    ],
)
def test_program(preloaded: dict[str, str], what: str) -> None:
    done = run(preloaded, what)
    assert done.returncode == 0, done.stderr


def test_errors_name_the_cause(preloaded: dict[str, str]) -> None:
    errors = run(preloaded, "wrong_arguments").stdout.splitlines()
    assert 'a role is "hp" or "be", not \'vip\'' in errors
    assert "there is no policy 'fifo'; choose one of orion, gate, none" in errors
    assert "a scheduler has 1 to 12 clients, not 99" in errors
    assert "a scheduler runs already; orion_stop_scheduler() ends it" in errors
    assert "there is no client 2; the scheduler has 2" in errors
    assert "the calling thread has no CUDA context on the scheduler's GPU; use the GPU in it first" in errors
    assert errors.count("this scheduler has stopped") == 8  # for every call on it


def test_without_the_hook_the_error_names_the_remedy(bare_machine: Machine) -> None:
    done = run(bare_machine.client_environment(None), "not_preloaded")
    assert done.returncode == 0, done.stderr
    assert "LD_PRELOAD" in done.stdout
    assert "orion launch" in done.stdout


def test_a_process_with_a_slot_is_refused_before_it_uses_its_gpu(bare_machine: Machine) -> None:
    """With a scheduler it would never join: nobody would hold it for hp, nor count its memory."""
    environment = bare_machine.client_environment(bare_machine.client_root("be-0"))
    done = run(environment, "in_a_slot")
    assert done.returncode == 0, done.stderr
    assert "this process is a node agent's client" in done.stdout


def test_in_a_clients_block_torch_uses_its_stream_and_runs_backward_in_its_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """torch has one thread for the backward passes on a GPU. There hp's would wait while be's launch waits for hp."""
    settings: list[object] = []

    def setting(name: str) -> Callable[[object], contextlib.AbstractContextManager[None]]:
        @contextlib.contextmanager
        def block(value: object) -> Iterator[None]:
            settings.append((name, value))
            yield
            settings.append(name)

        return block

    cuda = SimpleNamespace(is_available=lambda: True, stream=setting("stream"), ExternalStream=hex)
    autograd = SimpleNamespace(set_multithreading_enabled=setting("threads"))
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda, autograd=autograd))
    monkeypatch.setattr(Client, "stream", 0x70)
    with scheduler._torch_settings(Client(0, "be", Scheduler.__new__(Scheduler))):
        assert settings == [("stream", "0x70"), ("threads", False)]
    assert settings[2:] == ["threads", "stream"]
