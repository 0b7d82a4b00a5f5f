"""Cordoned GPUs: before and after the first list from the API server, and under a restarted agent."""

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


def test_without_saved_cordons_all_gpus_are_closed_until_the_first_list(tmp_path: Path, clock: list[float]) -> None:
    kept = Cordons(tmp_path / "cordons.json")
    verdict = kept.verdict(CLOSED)
    assert (verdict.healthy, verdict.cordoned, verdict.reason) == (True, True, "CordonUnknown")
    kept.set([CLOSED])
    assert kept.verdict(CLOSED).reason == "Cordoned"
    assert kept.verdict(OPEN) == FINE


def test_without_a_list_gpus_open_after_a_while(tmp_path: Path, clock: list[float]) -> None:
    kept = Cordons(tmp_path / "cordons.json")
    clock[0] += 9.9
    assert kept.verdict(OPEN).cordoned
    clock[0] += 0.2
    assert kept.verdict(OPEN) == FINE
    kept.set([OPEN])
    assert kept.verdict(OPEN).cordoned


def test_a_restarted_agent_uses_the_saved_cordons(tmp_path: Path, clock: list[float]) -> None:
    file = tmp_path / "cordons.json"
    for closed in ([CLOSED], [], [CLOSED, OPEN], [CLOSED]):
        Cordons(file).set(closed)
        again = Cordons(file)
        assert {name for name in (CLOSED, OPEN) if again.verdict(name).cordoned} == set(closed)
    clock[0] += 3_600.0
    assert again.verdict(CLOSED).reason == "Cordoned"
    assert again.verdict(OPEN) == FINE


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\xff", b"["])
def test_an_unreadable_file_is_ignored(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "cordons.json"
    file.write_bytes(content)
    kept = Cordons(file)
    assert kept.verdict(OPEN).reason == "CordonUnknown"
    kept.set([])
    assert Cordons(file).verdict(OPEN) == FINE


def test_cordons_from_before_the_boot_are_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Cordons(tmp_path / "cordons.json").set([])
    monkeypatch.setattr(cordons, "boot_id", lambda: "another")
    assert Cordons(tmp_path / "cordons.json").verdict(OPEN).reason == "CordonUnknown"


def test_with_a_full_root_only_the_file_is_missing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    kept = Cordons(tmp_path / "none" / "cordons.json")
    kept.set([CLOSED])
    assert kept.verdict(CLOSED).cordoned
    assert "would not know them" in caplog.text
