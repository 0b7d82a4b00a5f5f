"""Scenarios of all benchmarks are read alike: a fault is one sentence with the file and the line."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from orion.bench.colocation import scenario as colocation
from orion.bench.memory import scenario as memory
from orion.bench.quotas import scenario as quotas
from orion.bench.services import scenario as services
from orion.errors import Unreadable

SCENARIOS = memory.SHIPPED.parent


@pytest.mark.parametrize(
    "read",
    [colocation.read, services.read, quotas.read, memory.read],
    ids=["colocation", "services", "quotas", "memory"],
)
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"name: a\nservices: [", ", line 2: this is no YAML ("),
        (b"\xff\xfe\x00", ": this is no text: give a scenario"),
        (b"name: 2026-99-99", ": this is no YAML ("),
        (None, ": No such file or directory: give a scenario"),
    ],
    ids=["bracket", "bytes", "date", "missing"],
)
def test_a_file_that_is_no_scenario(
    read: Callable[[Path], object], content: bytes | None, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "scenario.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(Unreadable) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}{said}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("read", "fields"),
    [
        (quotas.read, "clients: [{workload: gemm}]"),
        (memory.read, "kind: changes, gpu_gib: 1, gib: 1, changes: 1"),
    ],
    ids=["quotas", "memory"],
)
def test_two_settings_with_one_name_are_refused(read: Callable[[Path], object], fields: str, tmp_path: Path) -> None:
    """Before, the second one was not measured, and nothing said so."""
    path = tmp_path / "scenario.yaml"
    path.write_text(f"settings: [{{name: one, {fields}}}, {{name: one, {fields}}}]\n")
    with pytest.raises(Unreadable, match="two settings have the name one, so one of them would not be measured"):
        read(path)


@pytest.mark.parametrize("field", ["prompt: [1024, 512]", "output: [128, 32]"])
def test_lengths_of_an_engines_requests_begin_with_the_fewest(field: str, tmp_path: Path) -> None:
    """Before, this ended the command with a traceback after all other parts were measured."""
    path = tmp_path / "scenario.yaml"
    content = (SCENARIOS / "services.yaml").read_text()
    name = field.partition(":")[0]
    path.write_text(re.sub(rf"  {name}: .*", f"  {field}", content))
    with pytest.raises(Unreadable, match=rf"engine: {name} is \[\d+, \d+\]; give the fewest tokens first"):
        services.read(path)
