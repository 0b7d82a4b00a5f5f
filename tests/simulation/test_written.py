"""Amounts of memory mean the same, and are refused with the same words, in fleets, clusters and scenarios."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from orion.errors import Unreadable
from orion.simulation.cluster import clusters
from orion.simulation.fleet import files
from orion.simulation.serving import reading

SCENARIO = """gpus: [{name: g, memory: AMOUNT}]
seconds: 1
services: [{name: s, objective: {latency: 50ms}, latency: [{batch: 1, smShare: 1, medianNs: 4000000}], rate: 1}]
"""
HP = "servers: [{gpus: 1, cpus: 1, memory: 1, hp: {busy: 0.1, freeMemory: AMOUNT}}]"


def fleet(path: Path) -> float:
    return files.read(path, files.parse(path))[0].memory_gb


FILES: dict[str, tuple[str, str, Callable[[Path], float]]] = {
    "fleet": ("gpus: {memory: AMOUNT}", "gpus.memory", fleet),
    "server": (
        "servers: [{gpus: 1, cpus: 1, memory: AMOUNT}]",
        "servers[0].memory",
        lambda path: clusters.read(path).servers[0][0].memory_gb,
    ),
    "free": (HP, "servers[0].hp.freeMemory", lambda path: clusters.read(path).servers[0][0].gpu_memory_gb),
    "scenario": (SCENARIO, "gpus[0].memory (g)", lambda path: reading.read(path).gpus[0].memory_gb),
}
each_file = pytest.mark.parametrize("kind", FILES)


@each_file
@pytest.mark.parametrize(
    ("amount", "gb"),
    [("40", 40), ("0.5", 0.5), ("40Gi", 42.94967296), ("'40 GiB'", 42.94967296), ("40GB", 40), ("500M", 0.5)],
)
def test_an_amount_is_the_same_in_every_file(kind: str, amount: str, gb: float, tmp_path: Path) -> None:
    text, _, read = FILES[kind]
    path = tmp_path / "file.yaml"
    path.write_text(text.replace("AMOUNT", amount))
    assert math.isclose(read(path), gb)


@each_file
@pytest.mark.parametrize(
    ("amount", "reason"),
    [
        ("-1", "-1 is less than 0"),
        ("-4Gi", "-4Gi is less than 0"),
        (".nan", "'nan' is no amount"),
        (".inf", "'inf' is no amount"),
        ("true", "'True' is no amount"),
        ("[1]", "'[1]' is no amount"),
        ("'40'", "'40' is no amount"),
        ("500m", "'500m' is no amount"),
        ("40Gx", "'40Gx' is no amount"),
    ],
)
def test_what_is_no_amount_is_refused_with_the_same_words(kind: str, amount: str, reason: str, tmp_path: Path) -> None:
    text, key, read = FILES[kind]
    path = tmp_path / "file.yaml"
    path.write_text(text.replace("AMOUNT", amount))
    with pytest.raises(Unreadable) as caught:
        read(path)
    said = f"{path}: {key}: {reason}; memory is given in GB, such as 40, or with a unit, such as 40Gi: correct it"
    assert str(caught.value) == said


@pytest.mark.parametrize("kind", ["fleet", "server", "scenario"])
def test_nothing_is_too_little_where_memory_is_needed(kind: str, tmp_path: Path) -> None:
    text, _, read = FILES[kind]
    path = tmp_path / "file.yaml"
    path.write_text(text.replace("AMOUNT", "0"))
    with pytest.raises(Unreadable, match="0 is too little; memory is given in GB"):
        read(path)
