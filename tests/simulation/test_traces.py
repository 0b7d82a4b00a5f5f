"""Readers of traces, on samples that are made up in the forms that the publishers describe."""

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orion.errors import Conflict, Invalid, Unreadable
from orion.simulation.traces.entries import Entry, JobEntry, RequestEntry, Skipped
from orion.simulation.traces.reading import NAMES, open_trace
from orion.simulation.traces.saving import save
from orion.simulation.traces.summary import Spread, Summary

SYNERGY = "0,alexnet,8,23349,1\n1,gnmt,126.5,26435,4\n"
KUBESHARE = "0\t1\t18\n99\t1\t0\n\n1\t16\t2\n"
ALIBABA = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,\
creation_time,deletion_time,scheduled_time
pod-0,12000,16384,1,1000,,LS,Running,0,12537496,0
pod-1,6000,12288,1,460,,LS,Running,427061,12902960,427061
pod-2,16000,65536,8,1000,V100M32|V100M16,BE,Succeeded,500000,500300,500100
pod-3,8000,1024,0,0,,BE,Running,500001,500400,500100
pod-4,8000,1024,1,500,,BE,Pending,500002,500400,
"""
AZURE_2023 = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
"""
AZURE_2024 = """TIMESTAMP,ContextTokens,GeneratedTokens
2024-05-12 00:00:00.007930+00:00,2162,5
2024-05-12 02:00:01.001630+02:00,2399,6
"""
BURST_1 = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45,ChatGPT,1087,0,1087,Conversation log
118.5,GPT-4,417,276,693,API log
"""
BURST_2 = """Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type
5,,1.5,ChatGPT,472,18,490,Conversation log
45,abc,,GPT-4,1087,3,1090,API log
"""


def attempt(start: str | None, end: str | None, *gpus: int) -> dict[str, Any]:
    detail = [{"ip": f"m{number}", "gpus": [f"gpu{gpu}" for gpu in range(count)]} for number, count in enumerate(gpus)]
    return {"start_time": start, "end_time": end, "detail": detail}


DAY = "2017-10-09"


def philly_job(name: str, submitted: str, *attempts: dict[str, Any]) -> dict[str, Any]:
    return {"status": "Pass", "vc": "a", "jobid": name, "submitted_time": f"{DAY} {submitted}", "attempts": attempts}


PHILLY = json.dumps(
    [
        philly_job(
            "app_1",
            "07:00:00",
            attempt(f"{DAY} 07:01:00", f"{DAY} 07:02:00", 8, 8),
            attempt(f"{DAY} 07:03:00", "None", 4),
            attempt(f"{DAY} 07:05:00", f"{DAY} 07:05:30", 4),
        ),
        philly_job("app_2", "06:00:00"),
        philly_job("app_3", "06:59:00", attempt(f"{DAY} 07:00:00", f"{DAY} 07:10:00", 1)),
        philly_job("app_4", "08:00:00", attempt(f"{DAY} 07:00:00", None, 1)),
    ],
    indent=1,
)

SAMPLES = {
    "synergy": SYNERGY,
    "kubeshare": KUBESHARE,
    "alibaba-gpu-2023": ALIBABA,
    "azure-llm-2023": AZURE_2023,
    "azure-llm-2024": AZURE_2024,
    "burstgpt-1": BURST_1,
    "burstgpt-2": BURST_2,
    "philly": PHILLY,
}


def read(path: Path, wanted: str = "") -> tuple[str, list[Entry], list[Skipped]]:
    trace, skipped = open_trace(path, wanted), list[Skipped]()
    return trace.name, list(trace.entries(skipped.append)), skipped


def read_text(folder: Path, text: str, wanted: str = "") -> tuple[str, list[Entry], list[Skipped]]:
    path = folder / "trace"
    path.write_text(text)
    return read(path, wanted)


@pytest.mark.parametrize("name", SAMPLES)
def test_the_content_says_the_form_plain_or_packed_whatever_the_name(name: str, tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.gz", tmp_path / "b.csv"
    plain.write_text("\ufeff" + SAMPLES[name].replace("\n", "\r\n"))
    packed.write_bytes(gzip.compress(SAMPLES[name].encode()))
    found = read(plain)
    assert found[0] == name
    assert found[1]
    assert found == read(packed) == read(packed, name)


def test_synergy_names_models_and_iterations(tmp_path: Path) -> None:
    _, entries, skipped = read_text(tmp_path, SYNERGY)
    assert entries == [
        JobEntry(1, "0", 8.0, 1, None, "alexnet", 23349),
        JobEntry(2, "1", 126.5, 4, None, "gnmt", 26435),
    ]
    assert skipped == []


def test_kubeshare_gives_gaps_and_minutes(tmp_path: Path) -> None:
    _, entries, _ = read_text(tmp_path, KUBESHARE)
    assert entries == [JobEntry(1, "0", 0, 1, 1080), JobEntry(2, "1", 99, 1, 0), JobEntry(4, "2", 100, 16, 120)]
    _, entries, _ = read_text(tmp_path, KUBESHARE, "kubeshare-seconds")
    assert [entry.duration_s for entry in entries if isinstance(entry, JobEntry)] == [18, 0, 2]


def test_the_gap_of_a_bad_line_counts(tmp_path: Path) -> None:
    _, entries, skipped = read_text(tmp_path, "0 1 1\n10 0 1\n5 1 1\n")
    assert [entry.arrival_s for entry in entries] == [0, 15]
    assert skipped == [Skipped(2, "the number of GPUs is '0', and must be from 1 to 1e+15", True)]


def test_alibaba_keeps_parts_of_a_gpu(tmp_path: Path) -> None:
    _, entries, skipped = read_text(tmp_path, ALIBABA)
    assert entries == [
        JobEntry(2, "pod-0", 0, 1, 12537496, quality="LS"),
        JobEntry(3, "pod-1", 427061, 0.46, 12475899, quality="LS"),
        JobEntry(4, "pod-2", 500000, 8, 200, quality="BE"),
    ]
    assert [(each.line, each.reason, each.is_bad) for each in skipped] == [
        (5, "the pod asks for no GPU", False),
        (6, "the pod was never scheduled", False),
    ]


def test_philly_sums_complete_attempts_and_takes_the_first_ones_gpus(tmp_path: Path) -> None:
    _, entries, skipped = read_text(tmp_path, PHILLY)
    assert entries == [JobEntry(2, "app_1", 0, 16, 90), JobEntry(79, "app_3", -60, 1, 600)]
    assert [(each.reason, each.is_bad) for each in skipped] == [
        ("the job has no attempt", False),
        ("no attempt has a begin and an end", False),
    ]
    assert PHILLY.splitlines()[skipped[0].line - 1] == " {"


def test_azure_times_count_from_the_first_request(tmp_path: Path) -> None:
    _, entries, _ = read_text(tmp_path, AZURE_2023)
    assert entries == [RequestEntry(2, 0, 374, 44), RequestEntry(3, 4.314579, 396, 109)]
    _, entries, _ = read_text(tmp_path, AZURE_2024)
    assert [entry.arrival_s for entry in entries] == [0, 0.9937]


@pytest.mark.parametrize(("sample", "lines"), [(BURST_1, [2, 4]), (BURST_2, [2, 3])])
def test_burstgpt_leaves_out_what_has_no_response(sample: str, lines: list[int], tmp_path: Path) -> None:
    _, entries, skipped = read_text(tmp_path, sample)
    assert [entry.line for entry in entries] == lines
    assert [entry.model for entry in entries] == ["ChatGPT", "GPT-4"]
    if sample is BURST_1:
        assert skipped == [Skipped(3, "the request has no response (0 response tokens)", False)]


def test_quotation_marks_hold_a_cell_together(tmp_path: Path) -> None:
    header, first, *_ = BURST_1.splitlines()
    quoted = ",".join(f'"{name}"' for name in header.split(","))
    text = "\n".join([quoted, first, '7,"GPT-4, turbo",3,4,7,"API ""log"""', f'"{"x" * 200_000}",a,1,1,2,b'])
    name, entries, skipped = read_text(tmp_path, text)
    assert name == "burstgpt-1"
    assert entries[1] == RequestEntry(3, 7, 3, 4, "GPT-4, turbo")
    assert [each.line for each in skipped] == [4]


@pytest.mark.parametrize(
    ("sample", "line", "reason"),
    [
        (SYNERGY + "1,gnmt,200,5,1\n", 3, "the job '1' is on line 2 already"),
        (SYNERGY + "2,gnmt,200,5\n", 3, "the line has 4 columns in place of 5"),
        (SYNERGY + "2,gnmt,nan,5,1\n", 3, "arrival_s is 'nan', which is no number"),
        (SYNERGY + "2,gnmt,-1,5,1\n", 3, "arrival_s is '-1', and must be from 0 to 1e+15"),
        (SYNERGY + "2,gnmt,1e999,5,1\n", 3, "arrival_s is '1e999', and must be from 0 to 1e+15"),
        (SYNERGY + "2,gnmt,1,5.5,1\n", 3, "total_iterations is '5.5', which is no whole number"),
        (SYNERGY + "2,gnmt,1,5,0\n", 3, "gpu_demand is '0', and must be from 1 to 1e+15"),
        (SYNERGY + "2,,1,5,1\n", 3, "the model is empty"),
        (ALIBABA + "p,1,1,1,1500,,LS,R,1,2,1\n", 7, "gpu_milli is 1500, and must be from 1 to 1000 where num_gpu is 1"),
        (ALIBABA + "p,1,1,1,500,,LS,R,1,2,5\n", 7, "the pod is deleted 3 s before it is scheduled"),
        (
            AZURE_2023 + "2023-13-16 18:15:46,1,1\n",
            4,
            "the time is '2023-13-16 18:15:46', which is not in the calendar",
        ),
        (AZURE_2023 + "soon,1,1\n", 4, "the time is 'soon', and must be like 2023-11-16 18:15:46.6805900"),
        (BURST_1 + "7,GPT-4,many,1,1,API log\n", 5, "Request tokens is 'many', which is no number"),
        ('[{"jobid": "a", "submitted_time": "x", "attempts": []}]', 1, "the time is 'x', and must be like"),
        ('[{"jobid": "a", "submitted_time": "2017-10-09 07:00:00"}]', 1, "attempts: field required"),
        ("[7]", 1, "the element: input should be a valid dictionary"),
    ],
)
def test_a_bad_line_is_skipped_with_its_number_and_reason(sample: str, line: int, reason: str, tmp_path: Path) -> None:
    _, _, skipped = read_text(tmp_path, sample)
    assert skipped[-1].is_bad
    assert skipped[-1].line == line
    assert skipped[-1].reason.startswith(reason)


def test_a_list_longer_than_a_piece_is_read_to_its_end(tmp_path: Path) -> None:
    job = {"submitted_time": f"{DAY} 07:00:00", "attempts": [attempt(f"{DAY} 07:01:00", f"{DAY} 07:02:00", 1)]}
    jobs = [{"jobid": f"app_{number}", "user": "ü" * 50, **job} for number in range(8_000)]
    text = json.dumps(jobs, ensure_ascii=False, separators=(",\n", ":"))
    assert len(text) > 1 << 20
    _, entries, skipped = read_text(tmp_path, text)
    assert len(entries) == 8_000
    assert skipped == []
    lines = text.splitlines()
    assert all(f"app_{number}" in lines[entry.line - 1] for number, entry in enumerate(entries))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (b"root:x:0:0\n", "has the form of no trace"),
        (b"\x00\xff" * 100, "has the form of no trace"),
        (gzip.compress(SYNERGY.encode() * 5_000)[:-9], "is a broken gzip file"),
        (b"\x1f\x8b nonsense", "is a broken gzip file"),
        (PHILLY[:-20].encode(), "this is no JSON list of jobs"),
        (b"[" * 100_000, "this is no JSON list of jobs"),
        (b"[" + b"9" * 5_000 + b"]", "this is no JSON list of jobs"),
        (SYNERGY.encode() + b"1," * (1 << 20), "longer than 1 MiB"),
    ],
)
def test_a_file_that_is_no_trace_gets_one_sentence(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_bytes(content)
    with pytest.raises(Unreadable, match=said) as refused:
        read(path)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_missing_file_and_an_unknown_form_are_named(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="No such file"):
        open_trace(tmp_path / "nowhere")
    with pytest.raises(Unreadable, match="Is a directory"):
        open_trace(tmp_path)
    with pytest.raises(Invalid, match="'csv' is unknown: choose one of alibaba"):
        open_trace(tmp_path, "csv")


cells = st.text(alphabet="0123456789.-+eE ,\t\"'[]{}:naNnulT/üx\n", max_size=60)


@pytest.mark.parametrize("name", ["", *NAMES])
@given(start=st.sampled_from(["", *SAMPLES.values()]), cut=st.floats(0, 1), data=st.data())
def test_no_bytes_crash_a_reader(
    name: str, start: str, cut: float, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rest = data.draw(st.binary(max_size=60) | cells.map(str.encode))
    content = start[: int(cut * len(start))].encode() + rest
    path = tmp_path_factory.getbasetemp() / "any-bytes"
    path.write_bytes(gzip.compress(content) if data.draw(st.booleans()) else content)
    try:
        _, entries, skipped = read(path, name)
    except Unreadable as refused:
        reasons = [str(refused)]
    else:
        json.dumps(summary(entries), allow_nan=False)
        reasons = [each.reason for each in skipped]
    assert all(reason and "\n" not in reason for reason in reasons)


def summary(entries: list[Entry]) -> dict[str, Any]:
    found = Summary("any", "jobs" if not entries or isinstance(entries[0], JobEntry) else "requests")
    for entry in entries:
        found.add(entry)
    return found.plain()


@given(st.lists(st.integers(0, 50), min_size=1), st.floats(0, 1))
def test_quantiles_are_numpys(values: list[int], quantile: float) -> None:
    spread = Spread()
    for value in values:
        spread.add(value)
    found = spread.figures({"q": quantile})
    assert found["q"] == pytest.approx(np.quantile(values, quantile), abs=1e-9)
    assert (found["min"], found["max"], found["total"]) == (min(values), max(values), sum(values))


def test_what_is_saved_counts_from_the_first_arrival(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    save(path, "requests", [RequestEntry(2, 5.0, 3, 4), RequestEntry(3, 5.0000001, 5, 6, "GPT-4, turbo")], 5.0)
    assert path.read_text() == 'arrival_s,prompt_tokens,output_tokens,model\n0,3,4,\n0.0000001,5,6,"GPT-4, turbo"\n'
    save(path, "jobs", [JobEntry(1, "a", 1.5, 0.46, 7.0, quality="BE")], 1.0)
    assert path.read_text() == "job_id,arrival_s,gpus,duration_s,model,iterations\na,0.5,0.46,7,,\n"
    save(path, "jobs", [], 0.0)
    assert path.read_text() == "job_id,arrival_s,gpus,duration_s,model,iterations\n"


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Unreadable, match="pipe is no regular file, and is read more than once"):
        open_trace(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(Conflict, match="it is no regular file"):
            save(path, "jobs", [], 0.0)


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "out.csv")
    save(tmp_path / "link", "jobs", [], 0.0)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "out.csv").read_text().startswith("job_id,")


def test_a_disk_that_is_full_leaves_what_was_there(tmp_path: Path) -> None:
    with pytest.raises(Conflict, match="cannot be written: No such file"):
        save(tmp_path / "nowhere" / "out.csv", "jobs", [], 0.0)
    path = tmp_path / "out.csv"
    path.write_text("before")

    def broken() -> Iterator[Entry]:
        raise OSError(28, "No space left on device")
        yield

    with pytest.raises(Conflict, match="No space left on device"):
        save(path, "jobs", broken(), 0.0)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]
