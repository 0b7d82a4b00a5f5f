"""Agents of the next layout and of this layout replace each other: an upgrade and a rollback."""

from pathlib import Path

from orion.hook import layout
from tests.hook.harness import Machine
from tests.hook.scripted_client import Client

NEXT = layout.LAYOUT_VERSION + 1


def replace_agent(machine: Machine, version: int, folder: Path) -> None:
    """Replace the agent by one of another layout."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        "from orion.hook import layout\n"
        f"layout.LAYOUT_NEWEST, layout.LAYOUT_OLDEST = {version}, {max(1, version - 1)}\n"
    )
    machine.kill_agent()
    machine.environment["PYTHONPATH"] = str(folder)
    machine.start_agent()


def index_of(machine: Machine, client: Client) -> tuple[int, int]:
    shown = machine.shown(client)
    assert shown
    return shown.place, shown.generation


def test_clients_keep_their_indices_and_new_ones_join_while_the_layout_changes_and_changes_back(
    machine: Machine, tmp_path: Path
) -> None:
    hp, be = clients = [machine.start("hp-0"), machine.start("be-0")]
    for turn, version in enumerate((NEXT, layout.LAYOUT_VERSION)):
        before = [index_of(machine, client) for client in clients]
        replace_agent(machine, version, tmp_path / f"layout-{turn}")
        machine.until_joined(*clients)
        assert [index_of(machine, client) for client in clients] == before
        machine.until_known(hp, be)
        clients.append(machine.start(f"be-{turn + 1}"))
        machine.until_known(hp, clients[-1])
    assert [client.said for client in clients] == [[]] * len(clients)


def test_an_agent_two_layouts_away_is_not_understood(machine: Machine, tmp_path: Path) -> None:
    client = machine.start("hp-0")
    replace_agent(machine, layout.LAYOUT_VERSION + 2, tmp_path / "layout")
    client.must("run 10 10")
    late = machine.start_in(machine.client_root("be-0"))
    late.must("init 0")
    late.must("run 10 10")
    machine.until(client, "")
    machine.until(late, "")
