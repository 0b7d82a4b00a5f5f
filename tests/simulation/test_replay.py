"""Traces as jobs of the simulator."""

from pathlib import Path

import pytest

from orion.errors import Invalid, Unreadable
from orion.planning.queues.demands import Profile
from orion.simulation.cluster.generate import CLASSES, Recipe, generate, lines
from orion.simulation.cluster.jobs import Job
from orion.simulation.cluster.replay import Replay, at_begin, replay

PROFILES = {model: Profile(model, 0.5, 3, 62.5, 1.0) for models in CLASSES for model in models}
Split = tuple[float, float, float] | None
ALIBABA = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
)


def replayed(folder: Path, text: str, split: Split = None, *, skip_bad: bool = False) -> Replay:
    path = folder / "trace"
    path.write_text(text)
    return replay(path, PROFILES, split, skip_bad=skip_bad)


def test_a_recording_is_replayed_as_it_was_generated(tmp_path: Path) -> None:
    jobs = generate(Recipe(200, 7.0, 3, gpu_mix="multi"), PROFILES)
    found = replayed(tmp_path, "".join(lines(jobs)))
    assert found.jobs == jobs
    assert found.lines == list(range(1, 201))
    assert found.form == "synergy"


def test_a_job_without_a_model_does_a_second_an_iteration_or_gets_a_model_of_the_generator(tmp_path: Path) -> None:
    found = replayed(tmp_path, "7 1 2\n3 16 0\n")
    assert found.jobs == [Job(0, "", 0, 120, 1), Job(1, "", 3, 1, 16)]
    found = replayed(tmp_path, "7 1 2\n3 16 0\n", (20, 70, 10))
    assert found.jobs == [Job(0, "alexnet", 0, 240, 1), Job(1, "gnmt", 3, 2, 16)]
    with pytest.raises(Invalid, match="the split 0,0,0 is not possible"):
        replayed(tmp_path, "7 1 2\n", (0, 0, 0))


def test_jobs_come_in_the_order_of_arrivals_and_parts_of_a_gpu_are_whole_gpus(tmp_path: Path) -> None:
    text = ALIBABA + "a,1,1,2,1000,,LS,R,500,520,510\nb,1,1,1,300,,LS,R,400,410,400\nc,1,1,0,0,,LS,R,400,410,400\n"
    found = replayed(tmp_path, text)
    assert found.jobs == [Job(0, "", 0, 10, 1), Job(1, "", 100, 10, 2)]
    assert found.lines == [3, 2]
    assert [each.reason for each in found.skipped] == ["the pod asks for no GPU"]


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("1,gnmt,5,0,1", "total_iterations is '0'"),
        ("0,gnmt,5,5,1", "the job '0' is on line 1 already"),
        ("1,vgg,5,5,1", r"the model 'vgg' has no profile \(there are alexnet, deepspeech"),
    ],
)
def test_a_bad_line_ends_the_reading_unless_it_may_be_skipped(bad: str, said: str, tmp_path: Path) -> None:
    text = f"0,gnmt,1,5,1\n{bad}\n2,gnmt,5,5,1\n"
    with pytest.raises(Unreadable, match=f"line 2: {said}.*: fix the line, or use --skip-bad"):
        replayed(tmp_path, text)
    found = replayed(tmp_path, text, skip_bad=True)
    assert [job.number for job in found.jobs] == [0, 2]
    assert [each.line for each in found.skipped] == [2]


def test_a_trace_without_jobs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match=r"holds requests \(form azure-llm-2023\)"):
        replayed(tmp_path, "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,1,1\n")
    with pytest.raises(Unreadable, match=r"holds no job that can run \(1 line skipped\)"):
        replayed(tmp_path, ALIBABA + "c,1,1,0,0,,LS,R,400,410,400\n")


@pytest.mark.parametrize("count", [100, 5000])
def test_all_jobs_can_be_there_at_the_begin_in_their_order(count: int) -> None:
    jobs = [Job(count - number, "", 50.0 * number, 10, 1) for number in range(count)]
    found = at_begin(jobs[::-1])
    assert [job.number for job in found] == [job.number for job in jobs]
    arrivals = [job.arrival_s for job in found]
    assert arrivals == sorted(set(arrivals))
    assert arrivals[-1] < 1
    assert arrivals[1] == (0.001 if count == 100 else pytest.approx(0.0001998))
