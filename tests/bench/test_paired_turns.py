"""Costs from paired turns, and the figures of `orion bench threads` with a fake torch."""

import importlib.util
import operator
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from orion.bench import paired_turns
from orion.bench.paired_turns import Spread


def test_a_drift_that_affects_both_systems_is_not_a_cost() -> None:
    turns = [{"plain": [speed, speed], "client": [speed + 1, speed + 1, 90.0]} for speed in (1.0, 5.0, 20.0)]
    assert paired_turns.over(turns, "client", "plain", operator.sub) == Spread(1.0, 1.0, 1.0)
    assert paired_turns.by_system(turns)["plain"] == Spread(5.0, 2.0, 16.25)


def test_one_sample_has_no_spread_and_turns_without_both_systems_are_left_out() -> None:
    turns = [{"plain": [2.0], "client": [3.0]}, {"client": [50.0]}]
    assert paired_turns.over(turns, "client", "plain", operator.truediv) == Spread(1.5, 1.5, 1.5)


class Anything:
    """Accepts every call and attribute, and is a context manager."""

    def __getattr__(self, name: str) -> Any:
        return Anything()

    def __call__(self, *words: Any, **named: Any) -> Any:
        return Anything()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *words: Any) -> None:
        pass


def test_every_turn_has_all_settings_and_the_table_has_their_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    torch, inprocess = types.ModuleType("torch"), types.ModuleType("orion.inprocess")
    for name in ("cuda", "ones", "randn", "empty_like", "mm", "bfloat16"):
        setattr(torch, name, Anything())
    inprocess.Scheduler = Anything()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "orion.inprocess", inprocess)
    spec = importlib.util.spec_from_file_location(
        "threads_cost_of_nothing", Path(paired_turns.__file__).parent / "threads_cost.py"
    )
    assert spec is not None
    assert spec.loader is not None
    threads_cost = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(threads_cost)
    monkeypatch.setattr(threads_cost, "BURSTS", 3)
    raw = threads_cost.measure(1, ["bfloat16"])
    turns = raw["turns"]
    assert len(turns["launch_ns"]) == len(turns["products_ms"]) == threads_cost.TURNS
    assert all({name: len(each) for name, each in turn.items()} == {"plain": 3, "be": 3, "hp": 3}
               for turn in turns["launch_ns"])  # fmt: skip
    assert all(len(turn) == len(threads_cost.SETTINGS) for turn in turns["products_ms"])
    assert all(len(each) == threads_cost.REPETITIONS for turn in turns["products_ms"] for each in turn.values())
    assert set(raw["figures"]["launch_over_plain_ns"]) == {"be", "hp"}
    shown = threads_cost.table(raw["figures"]).splitlines()
    assert len([line for line in shown if line.startswith("be and hp")]) == 4
    assert all(" to " in line for line in shown if line.startswith(("be", "hp", "two hp")))
