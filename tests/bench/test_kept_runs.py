"""`orion bench quotas` and `memory` continue an output folder only if its runs are of the same settings."""

from pathlib import Path
from typing import Any

import pytest

from orion.bench import raw_data
from orion.bench.memory import runs as memory
from orion.bench.memory import scenario as memory_scenario
from orion.bench.quotas import runs as quotas
from orion.bench.quotas import scenario as quotas_scenario
from orion.errors import Invalid

MEMORY = memory_scenario.read(memory_scenario.SHIPPED.with_name("memory-smoke.yaml"))
QUOTAS = quotas_scenario.read(memory_scenario.SHIPPED.with_name("quotas.yaml"))
FIRST = QUOTAS.settings[0]


def measure_memory(folder: Path, simulated: bool = True) -> list[str]:
    said: list[str] = []
    memory.run(MEMORY, folder, simulated, MEMORY.settings[0].name, said.append)
    return said


def measure_quotas(folder: Path, seconds: float = QUOTAS.seconds) -> list[str]:
    said: list[str] = []
    scenario = QUOTAS.model_copy(update={"seconds": seconds})
    quotas.run(scenario, folder, True, FIRST.name, 0.0, said.append)
    return said


def keep(folder: Path, name: str, **run: Any) -> None:
    raw_data.write(folder / f"{name}.json.gz", run)


def test_runs_of_the_same_settings_are_kept(tmp_path: Path) -> None:
    window = [QUOTAS.settle_seconds, QUOTAS.settle_seconds + QUOTAS.seconds]
    keep(tmp_path, FIRST.name, setting=FIRST.model_dump(exclude_none=True), window=window)
    first = MEMORY.settings[0]
    keep(tmp_path, first.name, setting=first.model_dump(), simulated=True)
    assert measure_quotas(tmp_path) == measure_memory(tmp_path) == []
    with pytest.raises(Invalid, match="of another scenario or kind of GPU"):
        measure_quotas(tmp_path, seconds=QUOTAS.seconds + 1)
    with pytest.raises(Invalid, match="of another scenario or kind of GPU"):
        measure_memory(tmp_path, simulated=False)


@pytest.mark.parametrize("content", [b"", b"no gzip", b"\x1f\x8b\x08"])
def test_a_damaged_run_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / f"{FIRST.name}.json.gz").write_bytes(content)
    with pytest.raises(Invalid, match="is damaged, or"):
        measure_quotas(tmp_path)


def test_a_run_of_another_setting_is_refused(tmp_path: Path) -> None:
    clients = [each.model_dump(exclude_none=True) for each in FIRST.clients][:1]
    keep(tmp_path, FIRST.name, setting={**FIRST.model_dump(exclude_none=True), "clients": clients * 3})
    with pytest.raises(Invalid, match="of another scenario or kind of GPU"):
        measure_quotas(tmp_path)


def test_an_output_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for measure in (measure_quotas, measure_memory):
        with pytest.raises(Invalid, match=r"--output .*/file cannot be written"):
            measure(tmp_path / "file")
