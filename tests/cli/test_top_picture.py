"""The output of `orion top`: readable from 70 columns on, with bars, and with colours on a terminal only."""

import io

import pytest
from rich.console import Console

from orion.cli.rates import ClientRates, key
from orion.cli.top_picture import picture
from orion.node_agent.api import agent_pb2

HP = agent_pb2.Client(place=0, generation=1, process_id=4_194_303, command="tritonserver-12", state="busy",
                      memory_bytes=40 << 30, slowdown=1.08)  # fmt: skip
BE = agent_pb2.Client(place=1, generation=1, process_id=812, command="python", state="gated",
                      memory_bytes=512 << 20, condition="kernels of 9 ms: [bold]gemm")  # fmt: skip
USAGE = agent_pb2.Usage(
    debt_seconds=0.25,
    second=agent_pb2.UsageParts(seconds=1.5, due=0.3961, charged=0.3957, measured=0.3912, waited=0.6043),
    recent=agent_pb2.UsageParts(seconds=10, due=0.1),
)
GPU = agent_pb2.Gpu(
    uuid="GPU-0", model="NVIDIA H200", memory_bytes=141 << 30, memory_used_bytes=60 << 30, policy="orion",
    window_us=400, hp_busy_ratio=0.34, settings=agent_pb2.Policy(fields={"max_slowdown": 1.2}),
    slots=[
        agent_pb2.Slot(name="be-0", role=agent_pb2.BE, clients=[BE], memory_limit_bytes=8 << 30,
                       request=0.4, limit=0.625, usage=USAGE),
        agent_pb2.Slot(name="be-1", role=agent_pb2.BE),
        agent_pb2.Slot(name="hp-0", role=agent_pb2.HP, clients=[HP]),
    ],
)  # fmt: skip
SNAPSHOT = agent_pb2.Snapshot(agent_version="1", agent_process_id=7, gpus=[GPU])
RATES = {key(GPU, HP): ClientRates(12_345.0, 0.0, 0.0), key(GPU, BE): ClientRates(490.0, 0.25, 0.58)}


def _drawn(width: int, terminal: bool = False, encoding: str = "utf-8") -> str:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding)
    console = Console(file=file, width=width, force_terminal=terminal, color_system="truecolor" if terminal else None)
    console.print(picture(SNAPSHOT, RATES, ["another agent is here"], console))
    file.flush()
    return raw.getvalue().decode(encoding)


@pytest.mark.parametrize("width", [70, 80, 120, 200])
def test_every_figure_is_there_and_no_line_is_too_long(width: int) -> None:
    shown = _drawn(width)
    assert max(map(len, shown.splitlines())) <= width
    for word in ("tritons", "4194303", "12,345", "490", "25%", "58%", "34%", "x1.08", "max slowdown 1.2", "be-1"):
        assert word in shown
    assert "! another agent is here" in shown
    assert "kernels of 9 ms: [bold]gemm" in shown
    assert ("512 MiB of 8.0 GiB" in shown) is (width >= 120)
    assert ("512M/8.0G" in shown) is (width < 96)


@pytest.mark.parametrize("width", [70, 80, 120, 200])
def test_slots_with_clients_have_their_gpu_time_beside_request_and_limit(width: int) -> None:
    rows = {
        line.split()[1]: line.split()[2:-1]
        for line in reversed(_drawn(width).splitlines())
        if "p-0" in line or "e-" in line
    }
    assert rows["be-0"] == ["0.4", "0.625", "0.396", "0.396", "0.391", "0.604", "0.25", "s"]
    assert rows["hp-0"] == ["1", "-"]
    assert rows["be-1"] == ["empty"]


def test_hp_slots_are_above_be_slots() -> None:
    shown = _drawn(80)
    assert shown.index("hp-0") < shown.index("be-0")


def test_bars_are_as_long_as_their_shares() -> None:
    lengths = {line.split()[1]: line.count("█") for line in _drawn(120).splitlines() if "█" in line}
    assert set(lengths) == {"memory", "hp", "be"}
    assert lengths["hp"] < lengths["memory"] < lengths["be"]


def test_memory_that_is_parked_is_not_in_use_where_the_device_reports_none() -> None:
    gpu = agent_pb2.Gpu()
    gpu.CopyFrom(GPU)
    gpu.memory_used_bytes = 0
    gpu.slots[0].parking.state = "parked"
    console = Console(file=io.StringIO(), width=120)
    console.print(picture(agent_pb2.Snapshot(gpus=[gpu]), RATES, [], console))
    assert "40.0 GiB of 141 GiB" in console.file.getvalue()  # type: ignore[attr-defined]


def test_only_a_terminal_gets_colours() -> None:
    assert "\x1b" not in _drawn(80)
    assert "\x1b[" in _drawn(80, terminal=True)


def test_a_terminal_without_unicode_gets_ascii() -> None:
    assert "490" in _drawn(80, encoding="ascii")
