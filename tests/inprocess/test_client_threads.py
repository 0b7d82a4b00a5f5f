"""Threads as clients that call the C functions; each scenario of hook/test/client_threads/ is a test."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.hook.harness import Machine

SOURCE = Path(__file__).parents[2] / "hook" / "test" / "client_threads" / "scenarios.h"
SCENARIOS = sorted(set(re.findall(r"\bSCENARIO\((\w+)\)", SOURCE.read_text())) - {"name"})
BASELINES = sorted(set(re.findall(r"\bBASELINE\((\w+)\)", SOURCE.read_text())) - {"name"})
SECONDS = 60


def run(machine: Machine, environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    program = machine.build / "test" / "client_threads"
    return subprocess.run([program, *arguments], env=environment, capture_output=True, text=True, timeout=SECONDS)


@pytest.mark.parametrize("scenario", SCENARIOS + BASELINES)
def test_scenario(bare_machine: Machine, scenario: str) -> None:
    slots = []
    more = {}
    if scenario in BASELINES:
        bare_machine.know_baselines()
    if scenario == "a_client_of_an_agent_is_refused":
        bare_machine.start_agent()
        slots = ["be-0"]
    if scenario == "a_synchronise_of_another_gpus_context_waits_for_it":
        bare_machine.simulate(ORION_SIM_GPUS="2")
    if scenario == "the_environment_names_hp":
        more["ORION_HP_CLIENT"] = "0"
    environment = bare_machine.client_environment(bare_machine.client_root(*slots)) | more
    done = run(bare_machine, environment, scenario)
    assert done.returncode == 0, done.stderr


def test_the_program_and_this_file_have_the_same_scenarios(bare_machine: Machine) -> None:
    done = run(bare_machine, bare_machine.client_environment(None), "list")
    assert sorted(done.stdout.split()) == sorted(SCENARIOS + BASELINES)
    assert len(SCENARIOS) >= 20


def test_a_hook_that_is_not_preloaded_has_no_entry_points(bare_machine: Machine) -> None:
    assert run(bare_machine, bare_machine.client_environment(None), "be_waits_for_hp").returncode == 1


def test_an_invalid_hp_client_is_refused_with_a_reason(bare_machine: Machine, preloaded: dict[str, str]) -> None:
    done = run(bare_machine, preloaded | {"ORION_HP_CLIENT": "two"}, "be_waits_for_hp")
    assert done.returncode == 1
    assert "ORION_HP_CLIENT must be the number of a client, 0 to 1" in done.stderr


@pytest.mark.parametrize(("level", "words"), [("1", []), ("3", ["info"]), ("4", ["info", "debug"])])
def test_the_log_level_selects_the_messages(
    bare_machine: Machine, preloaded: dict[str, str], level: str, words: list[str]
) -> None:
    done = run(bare_machine, preloaded | {"ORION_LOG_LEVEL": level}, "a_stream_keeps_its_client")
    assert done.returncode == 0, done.stderr
    assert sorted(set(re.findall(r"^orion (\w+): ", done.stderr, re.MULTILINE)), reverse=True) == words
    assert len(done.stderr.splitlines()) < 60  # no line per launch
