"""GPUs that people have closed: before and after the API server has said so, and under an agent that begins again."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from orion.node_agent.advertising.advertising import FINE
from orion.node_agent.cluster.reporting import cordons
from orion.node_agent.cluster.reporting.cordons import Cordons

CLOSED, OPEN = "gpu-a", "gpu-b"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1_000.0]
    monkeypatch.setattr(cordons, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def test_where_nothing_is_known_no_pod_comes_until_the_first_list(tmp_path: Path, clock: list[float]) -> None:
    kept = Cordons(tmp_path / "cordons.json")
    verdict = kept.verdict(CLOSED)
    assert (verdict.healthy, verdict.cordoned, verdict.reason) == (True, True, "CordonUnknown")
    kept.hear([CLOSED])
    assert kept.verdict(CLOSED).reason == "Cordoned"
    assert kept.verdict(OPEN) == FINE


def test_a_list_that_never_comes_keeps_nobody_for_long(tmp_path: Path, clock: list[float]) -> None:
    kept = Cordons(tmp_path / "cordons.json")
    clock[0] += 9.9
    assert kept.verdict(OPEN).cordoned
    clock[0] += 0.2
    assert kept.verdict(OPEN) == FINE
    kept.hear([OPEN])
    assert kept.verdict(OPEN).cordoned


def test_an_agent_that_begins_again_goes_by_what_was_heard_last(tmp_path: Path, clock: list[float]) -> None:
    file = tmp_path / "cordons.json"
    for closed in ([CLOSED], [], [CLOSED, OPEN], [CLOSED]):
        Cordons(file).hear(closed)
        again = Cordons(file)
        assert {name for name in (CLOSED, OPEN) if again.verdict(name).cordoned} == set(closed)
    clock[0] += 3_600.0
    assert again.verdict(CLOSED).reason == "Cordoned"
    assert again.verdict(OPEN) == FINE


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\xff", b"["])
def test_a_memory_that_cannot_be_read_is_none(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "cordons.json"
    file.write_bytes(content)
    kept = Cordons(file)
    assert kept.verdict(OPEN).reason == "CordonUnknown"
    kept.hear([])
    assert Cordons(file).verdict(OPEN) == FINE


def test_what_was_heard_before_the_node_booted_counts_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Cordons(tmp_path / "cordons.json").hear([])
    monkeypatch.setattr(cordons, "boot_id", lambda: "another")
    assert Cordons(tmp_path / "cordons.json").verdict(OPEN).reason == "CordonUnknown"


def test_a_root_that_is_full_costs_the_memory_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    kept = Cordons(tmp_path / "none" / "cordons.json")
    kept.hear([CLOSED])
    assert kept.verdict(CLOSED).cordoned
    assert "would not know them" in caplog.text
