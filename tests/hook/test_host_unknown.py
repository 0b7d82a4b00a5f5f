"""Functions of a driver that is newer than the hook: they work, and users learn that the hook does not manage them."""

import pytest

from tests.hook.harness import Machine, record_word
from tests.hook.scripted_client import Client, eventually

NAME = "cuLaunchOfTheFuture"
WAYS = ("future", "future 1")
""" By cuGetProcAddress, and by dlsym. """


def reported(machine: Machine, client: Client) -> str:
    shown = machine.shown(client)
    return next((each.message for each in shown.conditions if each.reason == "Reported"), "") if shown else ""


@pytest.mark.parametrize("way", WAYS)
def test_a_function_of_a_newer_driver_runs_and_is_reported(machine: Machine, way: str) -> None:
    for client in (machine.start("hp-0"), machine.start("be-0")):
        assert reported(machine, client) == ""
        for _ in range(3):
            client.must(way)
        eventually(lambda client=client: NAME in reported(machine, client), "a condition names the function")  # type: ignore[misc]
        eventually(lambda client=client: record_word(client, "unknown_functions") == 1)  # type: ignore[misc]
        (said,) = client.said
        assert said.endswith(f"passes its calls through unmanaged; update Orion: {NAME}")


def test_what_was_looked_up_before_the_client_joined_is_reported_to_each_agent(machine: Machine) -> None:
    client = machine.start_in(machine.client_root("be-0"))
    assert client.do("future").result != 0  # the program has no context yet
    client.must("init 0")
    eventually(lambda: NAME in reported(machine, client))
    machine.kill_agent()
    machine.start_agent()
    eventually(lambda: NAME in reported(machine, client), "the next agent shows it, too")


def test_a_program_without_an_agent_says_it_once(bare_machine: Machine) -> None:
    client = bare_machine.start_in(bare_machine.client_root("be-0"))
    client.must("init 0")
    client.must("future")
    client.must("future 1")
    assert sum(NAME in line for line in client.said) == 1


def test_functions_that_the_hook_knows_are_not_reported(machine: Machine) -> None:
    client = machine.start("be-0")
    client.must("dlclose")  # looks functions up
    client.must("run 3 100")
    assert reported(machine, client) == ""
    assert client.said == []
