"""GPUs that appear after the agent's start or get new numbers, and how they are advertised; with a scripted NVML."""

import asyncio
import tempfile
import types
from pathlib import Path

import pytest

from orion.node_agent.advertising.advertising import HealthJudge
from orion.node_agent.agent import Agent
from orion.node_agent.gpus.hysteresis import Patience
from orion.node_agent.gpus.interface import HEALTHY, Gpu
from orion.node_agent.gpus.keeper import GONE, HealthKeeper
from orion.node_agent.gpus.nvml import NvmlGpus
from orion.node_agent.gpus.remembering import RememberingGpus
from orion.node_agent.settings import AgentSettings
from orion.node_agent.state.root import Root
from tests.node_agent import scripted_nvml
from tests.node_agent.conftest import look_until
from tests.node_agent.scripted_nvml import ScriptedNvml, uuid

PATIENCE = Patience(doubts=3, looks=2, hold_s=0.0)


def test_a_gpu_that_is_missing_at_the_start_is_advertised_as_gone_until_it_answers(
    nvml: ScriptedNvml, tmp_path: Path, searching: None
) -> None:
    file = tmp_path / "gpus.json"
    before = RememberingGpus(NvmlGpus(), file).find()
    nvml.gpus[2].trouble = scripted_nvml.UNKNOWN
    for _ in range(2):  # the list still has the GPU after a start without it
        source = RememberingGpus(NvmlGpus(), file)
        assert source.find() == before
        assert [source.health(gpu) for gpu in before] == [HEALTHY, HEALTHY, GONE]
    keeper = HealthKeeper(source, before, lambda: None, patience=PATIENCE)

    async def scenario() -> None:
        await keeper.look()
        assert [keeper.verdict(uuid(index)).healthy for index in range(3)] == [True, True, False]
        nvml.gpus[2].trouble = 0
        await look_until(keeper, lambda: keeper.verdict(uuid(2)).healthy)

    asyncio.run(scenario())


def test_a_new_gpu_is_found_while_all_others_are_healthy(nvml: ScriptedNvml, searching: None) -> None:
    nvml.gpus[2].trouble = scripted_nvml.UNKNOWN
    source = NvmlGpus()
    seen: list[tuple[Gpu, bool, bool]] = []

    def found(gpu: Gpu) -> None:
        seen.append((gpu, keeper.verdict(gpu.uuid).healthy, keeper.mig(gpu.uuid)))

    keeper = HealthKeeper(source, source.find(), lambda: None, found, PATIENCE)

    async def scenario() -> None:
        await keeper.look()
        assert not seen
        nvml.gpus[2].trouble = 0
        nvml.gpus[2].mig, nvml.gpus[2].action = True, scripted_nvml.RESET
        await keeper.look()
        # The GPU's health and MIG mode are known when it is reported.
        assert [(gpu.uuid, *rest) for gpu, *rest in seen] == [(uuid(2), False, True)]
        assert nvml.registered == [0, 1, 2]
        nvml.gpus[2].action = scripted_nvml.NO_ACTION
        await look_until(keeper, lambda: keeper.verdict(uuid(2)).healthy)
        nvml.events = [(2, scripted_nvml.XID, 79)]
        await keeper.look()
        assert keeper.verdict(uuid(2)).reason == "Xid79"

    asyncio.run(scenario())


def test_a_gpu_that_does_not_answer_is_logged_once(nvml: ScriptedNvml, caplog: pytest.LogCaptureFixture) -> None:
    source = NvmlGpus()
    for trouble in (scripted_nvml.UNKNOWN, scripted_nvml.UNKNOWN, scripted_nvml.LOST, 0, scripted_nvml.LOST):
        nvml.gpus[2].trouble = trouble
        source.find()
    assert caplog.text.count("index 2 does not answer") == 3


def test_a_failed_report_of_a_late_gpu_is_repeated(nvml: ScriptedNvml, searching: None) -> None:
    seen: list[str] = []

    def found(gpu: Gpu) -> None:
        seen.append(gpu.uuid)
        if len(seen) == 1:
            raise RuntimeError

    keeper = HealthKeeper(NvmlGpus(), [], lambda: None, found, PATIENCE)

    async def scenario() -> None:
        with pytest.raises(RuntimeError):
            await keeper.look()
        await keeper.look()
        assert seen == [uuid(0), uuid(0), uuid(1), uuid(2)]

    asyncio.run(scenario())


def test_searches_are_rare_while_all_gpus_are_healthy(nvml: ScriptedNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    source = NvmlGpus()
    gpus = source.find()
    searches: list[None] = []
    find = source.find

    def counted() -> list[Gpu]:
        searches.append(None)
        return find()

    monkeypatch.setattr(source, "find", counted)
    now = [1000.0]
    monkeypatch.setattr("orion.node_agent.gpus.keeper.time", types.SimpleNamespace(monotonic=lambda: now[0]))
    keeper = HealthKeeper(source, gpus, lambda: None, patience=PATIENCE)

    async def scenario() -> None:
        await keeper.look()
        assert not searches  # the GPUs have just been found
        now[0] += 59.0
        await keeper.look()
        assert not searches
        now[0] += 1.0
        await keeper.look()
        await keeper.look()
        assert len(searches) == 1

    asyncio.run(scenario())


# -- Numbers -----------------------------------------------------------------------------------------------------------


def test_a_gpu_with_a_new_number_is_reported_again(nvml: ScriptedNvml, searching: None) -> None:
    seen: list[tuple[str, int]] = []
    source = NvmlGpus()
    keeper = HealthKeeper(source, source.find(), lambda: None, lambda gpu: seen.append((gpu.uuid, gpu.minor)), PATIENCE)

    async def scenario() -> None:
        await keeper.look()
        nvml.gpus[0].minor, nvml.gpus[1].minor = 5, 4
        await keeper.look()
        await keeper.look()
        assert seen == [(uuid(0), 5), (uuid(1), 4)]
        assert all(keeper.verdict(uuid(index)).healthy for index in range(3))

    asyncio.run(scenario())


def test_a_minor_number_that_cannot_be_read_is_not_guessed(nvml: ScriptedNvml) -> None:
    nvml.gpus[0].minor_trouble = scripted_nvml.UNKNOWN
    nvml.gpus[1].minor_trouble = scripted_nvml.NOT_SUPPORTED
    assert [(gpu.uuid, gpu.minor) for gpu in NvmlGpus().find()] == [(uuid(1), 1), (uuid(2), 6)]


# -- What is advertised ------------------------------------------------------------------------------------------------


def test_the_agent_advertises_a_missing_gpu_as_gone_and_passes_on_the_newest_numbers(
    nvml: ScriptedNvml, searching: None
) -> None:
    async def scenario(root: Path) -> None:
        source = RememberingGpus(NvmlGpus(), root.with_name("gpus.json"))
        source.find()
        nvml.gpus[2].trouble = scripted_nvml.LOST
        source = RememberingGpus(NvmlGpus(), root.with_name("gpus.json"))
        agent = Agent(AgentSettings(root=root), Root(root), source)
        try:
            agent.start()
            gpus = [served.shared_gpu.gpu for served in agent.gpus.values()]
            keeper = HealthKeeper(source, gpus, agent.advertising.changed, agent.add_gpu, PATIENCE)
            agent.advertising.slots.mig_enabled = keeper.mig
            agent.advertising.add_judge(HealthJudge(keeper))
            await keeper.look()
            advertised = agent.advertising.look().gpus
            assert [(each.gpu.minor, each.verdict.reason, bool(each.slots)) for each in advertised] == [
                (4, "", True),
                (5, "", True),
                (6, "GPUGone", True),
            ]
            nvml.gpus[2].trouble, nvml.gpus[2].minor, nvml.gpus[0].minor = 0, 4, 6
            await look_until(keeper, lambda: keeper.verdict(uuid(2)).healthy)
            advertised = agent.advertising.look().gpus
            assert [(each.gpu.minor, each.verdict.reason) for each in advertised] == [(6, ""), (5, ""), (4, "")]
        finally:
            agent.stop()
            agent.root.close()

    with tempfile.TemporaryDirectory(prefix="orion-", dir="/tmp") as folder:
        asyncio.run(scenario(Path(folder) / "root"))
