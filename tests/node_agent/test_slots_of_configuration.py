"""Slots when the configuration changes in any way, while containers hold some of them."""

import asyncio
import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orion.hook import layout
from orion.node_agent.advertising.advertising import FINE, Verdict
from orion.node_agent.agent import Agent
from orion.node_agent.settings import AgentSettings
from orion.node_agent.slots.holders import NoHolders
from orion.node_agent.slots.slot import Slot
from orion.node_agent.state.root import Root
from tests.node_agent.one_gpu import GPU, OneGpu


class ScriptedHolders(NoHolders):
    """Holders that a test sets."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.certain = True

    def holds(self, slot: Slot) -> bool:
        return slot.name in self.names

    def held(self, gpu: str) -> dict[str, layout.Role]:
        return {name: layout.Role.HP if name.startswith("hp") else layout.Role.BE for name in self.names}


step = st.tuples(
    st.integers(0, 2),
    st.integers(0, 3),
    st.sets(st.sampled_from(["hp-0", "hp-1", "hp-2", "be-1", "be-5"])),
    st.booleans(),
    st.booleans(),
)


@given(st.lists(step, min_size=1, max_size=8))
@settings(deadline=None, max_examples=25)
def test_a_held_slot_outlives_its_configuration_and_hp_slots_never_exceed_it(
    steps: list[tuple[int, int, set[str], bool, bool]],
) -> None:
    async def follow(folder: Path) -> None:
        file, holders = folder / "nodes.yaml", ScriptedHolders()
        file.write_text("{version: v1}")
        agent = Agent(AgentSettings(root=folder / "root", configuration=file), Root(folder / "root"), OneGpu())
        agent.holders = holders
        agent.start()
        try:
            before = {slot.name for slot in agent.gpus[GPU].shared_gpu.slots.values()}
            for number, (hp, be, holders.names, holders.certain, rollout) in enumerate(steps):
                agent.advertising.slots.successor = lambda _, rollout=rollout: rollout  # type: ignore[misc]
                # Writes may have the same size and, within a clock tick, the same time: only a new file's name differs.
                new = folder / f"new-{number}"
                new.write_text(json.dumps({"version": "v1", "slots": {"hp": hp, "be": be}}))
                new.rename(file)
                (advertised,) = agent.advertising.look().gpus or (None,)
                names = set(advertised.slots) if advertised else set()
                of_be = {f"be-{each}" for each in range(be)} | holders.names | (set() if holders.certain else before)
                assert {name for name in names if name[0] == "b"} == {name for name in of_be if name[0] == "b"}
                assert names >= holders.names | (set() if holders.certain else before)
                held = sum(name[0] == "h" for name in holders.names)
                if holders.certain and advertised and hp:
                    takes_pods = sum(name[0] == "h" for name in names - set(advertised.closed))
                    assert takes_pods == hp + (rollout and held == hp)
                before = names
                assert set(advertised.held if advertised else ()) == holders.names
                assert all((folder / "root" / "gpus" / GPU / name / "agent.sock").is_socket() for name in names)
        finally:
            agent.stop()
            agent.root.close()

    with tempfile.TemporaryDirectory(prefix="orion-", dir="/tmp") as folder:
        asyncio.run(follow(Path(folder)))


@pytest.mark.parametrize("verdict", [FINE, Verdict(cordoned=True, reason="Cordoned", message="m")])
async def test_a_gpu_with_mig_is_sick_while_a_slot_of_it_is_held_whoever_has_cordoned_it(
    verdict: Verdict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, holders = tmp_path / "nodes.yaml", ScriptedHolders()
    file.write_text("{version: v1}")
    agent = Agent(AgentSettings(root=tmp_path / "root", configuration=file), Root(tmp_path / "root"), OneGpu())
    agent.holders = holders
    agent.start()
    try:
        monkeypatch.setattr(agent.advertising, "verdict", lambda _: verdict)
        holders.names = {"be-1"}
        agent.advertising.slots.mig_enabled = lambda _: True
        (gpu,) = agent.advertising.look().gpus
        assert (gpu.verdict.healthy, gpu.verdict.cordoned, gpu.verdict.reason) == (False, True, "MIGEnabled")
        holders.names = set()
        (left,) = agent.advertising.look().not_advertised
        assert left.reason == "MIGEnabled"
    finally:
        agent.stop()
        agent.root.close()
