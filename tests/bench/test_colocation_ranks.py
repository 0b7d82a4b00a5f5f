"""A be entry with one process for each of two GPUs, measured on the simulated GPU."""

from pathlib import Path

import pytest

from orion.bench.managed import ManagedGPU, machine
from orion.bench.workers.crew import Crew
from tests.bench.small_scenario import BE, PAIR, measured, scenario
from tests.bench.test_colocation_runs import read
from tests.processes import children

OPTIONS = {"kernel_us": 100, "kernels": 10, "ranks": 2, "queued": True}
RANKS = {**BE, "options": OPTIONS}


def test_a_job_of_two_ranks_is_measured_as_one_be(tmp_path: Path) -> None:
    written = scenario(tmp_path, ["alone", "timeslice", "orion"], be=[RANKS])
    assert measured(written, tmp_path / "out") == 0
    runs = {path.name.partition(".")[0]: read(path) for path in (tmp_path / "out" / PAIR).rglob("*.json.gz")}
    assert not [run["error"] for run in runs.values() if run["error"]]
    beside = runs["orion"]
    assert len(beside["be"]) == 1
    assert beside["be"][0]["about"]["amount"] == 2, "the units of both ranks"
    assert len(beside["be"][0]["ends"]) > 20, "the job advances"
    alone = next(run for run in runs.values() if run["system"] == "be-alone")
    assert len(alone["be"][0]["ends"]) > 20


def test_a_job_of_several_ranks_cannot_be_threads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = scenario(tmp_path, ["alone", "gate-in-threads"], be=[RANKS])
    assert measured(written, tmp_path / "out") == 2
    assert "under 'gate-in-threads', be is a thread, so it has no ranks" in capsys.readouterr().err


def test_the_ranks_get_the_page_of_a_job(tmp_path: Path) -> None:
    with machine(simulated=True) as found:
        found["ORION_SIM_GPUS"] = "2"
        with ManagedGPU(found, simulated=True) as managed, Crew() as crew:
            environment = managed.client_environment("be", all_gpus=True)
            be = crew.start("be", "simulated-training", OPTIONS, environment)
            crew.ready(be)
            (other,) = children(be.process_id)
            pages = {job_page(process) for process in (be.process_id, other)}
            assert len(pages) == 1
            assert pages != {None}


def job_page(process_id: int) -> str | None:
    """Return the inode of the job page that a process has mapped, or None."""
    lines = Path(f"/proc/{process_id}/maps").read_text().splitlines()
    return next((line.split()[4] for line in lines if "memfd:orion-job" in line), None)
