"""`orion trace show`: what people and scripts see."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from orion.cli.main import main

Call = Callable[..., tuple[int, str, str]]
BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"


@pytest.fixture
def show(capsys: pytest.CaptureFixture[str]) -> Call:
    def call(*arguments: str | Path) -> tuple[int, str, str]:
        status = main(["trace", "show", *map(str, arguments)])
        reported = capsys.readouterr()
        return status, reported.out, reported.err

    return call


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.txt"
    path.write_text("5 1 18\n99 1 0\n1 0 4\n1 16 2\n")
    return path


def test_jobs_as_json(show: Call, jobs: Path) -> None:
    status, out, err = show(jobs, "--json")
    assert (status, err) == (0, "")
    assert json.loads(out) == {
        "schema": "orion.trace/1",
        "format": "kubeshare",
        "kind": "jobs",
        "entries": 3,
        "skipped": [
            {"line": 3, "reason": "the number of GPUs is '0', and must be from 1 to 1e+15", "bad": True},
        ],
        "first_s": 0,
        "last_s": 101,
        "gpus": {"1": 2, "16": 1},
        "duration_s": {"min": 0, "mean": 400, "p50": 120, "max": 1080},
    }


def test_requests_as_json_and_as_an_arrivals_file(show: Call, tmp_path: Path) -> None:
    trace, arrivals = tmp_path / "trace.csv.gz", tmp_path / "arrivals.csv"
    trace.write_bytes(gzip.compress(f"{BURST}7,GPT-4,10,4,14,API log\n5,GPT-4,20,2,22,API log\n6,a,3,0,3,b\n".encode()))
    status, out, _ = show(trace, "--json", "--output", arrivals)
    assert status == 0
    found = json.loads(out)
    assert (found["kind"], found["entries"], found["first_s"], found["last_s"]) == ("requests", 2, 0, 2)
    assert found["prompt_tokens"] == {"total": 30, "mean": 15, "p50": 15, "p99": pytest.approx(19.9)}
    assert found["output_tokens"] == {"total": 6, "mean": 3, "p50": 3, "p99": pytest.approx(3.98)}
    assert arrivals.read_text() == "arrival_s,prompt_tokens,output_tokens,model\n0,20,2,GPT-4\n2,10,4,GPT-4\n"


def test_what_has_no_value_is_null(show: Call, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    trace.write_text(f"{BURST}5,GPT-4,10,0,10,API log\n")
    _, out, _ = show(trace, "--json")
    found = json.loads(out)
    assert (found["entries"], found["first_s"], found["last_s"]) == (0, None, None)
    assert found["prompt_tokens"] == {"total": None, "mean": None, "p50": None, "p99": None}
    trace.write_text("0,gnmt,3,5,1\n")
    _, out, _ = show(trace, "--json")
    assert json.loads(out)["duration_s"] == {"min": None, "mean": None, "p50": None, "max": None}


def test_people_read_counts_and_reasons(show: Call, jobs: Path) -> None:
    status, out, err = show(jobs)
    assert (status, err) == (0, "")
    assert f"{jobs}: 3 jobs in the form kubeshare" in out
    assert "GPUs: 2 x 1, 1 x 16" in out
    assert "1 bad\n  line 3: the number of GPUs is '0'" in out
    assert "\x1b" not in out


@pytest.mark.parametrize(
    ("content", "option", "status", "said"),
    [
        ("", "", 1, "is empty: give a file"),
        ("who knows\n", "", 1, "name the form with --format (alibaba-gpu-2023,"),
        ("0,gnmt,3,5,0\n", "synergy", 1, "line 1: gpu_demand is '0'"),
        ("0,gnmt,3,5,1\n", "csv", 2, "--format cannot be 'csv': the forms are alibaba-gpu-2023"),
    ],
)
def test_what_cannot_be_read_gets_one_sentence(
    show: Call, content: str, option: str, status: int, said: str, tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    trace.write_text(content)
    found, out, err = show(trace, *(["--format", option] if option else []))
    assert (found, out) == (status, "")
    assert said in err
    assert err.count("\n") == 1


def test_the_trace_is_not_overwritten(show: Call, jobs: Path) -> None:
    before = jobs.read_text()
    status, _, err = show(jobs, "--output", jobs)
    assert status == 2
    assert "that is the trace itself" in err
    assert jobs.read_text() == before


def test_an_output_that_cannot_be_written_is_named(show: Call, jobs: Path, tmp_path: Path) -> None:
    status, out, err = show(jobs, "--output", tmp_path / "nowhere" / "out.csv")
    assert (status, out) == (1, "")
    assert "out.csv cannot be written: No such file or directory" in err
