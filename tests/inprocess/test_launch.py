"""`orion launch` reads job files and runs them on the simulated GPU, with stand-ins for the workloads."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orion.bench.job_file import read_jobs
from orion.cli.launch import launch
from orion.errors import NotFound, Unreadable
from tests.hook.harness import Machine
from tests.waiting import eventually

EXAMPLE = Path(__file__).parents[2] / "examples" / "threads" / "jobs.json"


def client(**changes: Any) -> dict[str, Any]:
    arguments = {
        "model_name": "resnet50",
        "batchsize": 4,
        "rps": 0,
        "uniform": False,
        "dummy_data": True,
        "train": False,
    }
    entry = {"arch": "rnet-4", "kernel_file": "rnet.csv", "num_kernels": 152, "num_iters": 40, "args": arguments}
    arguments.update({name: value for name, value in changes.items() if name in arguments or name == "input_file"})
    return entry | {name: value for name, value in changes.items() if name not in arguments}


def written(tmp_path: Path, *clients: dict[str, Any]) -> Path:
    path = tmp_path / "jobs.json"
    path.write_text(json.dumps(clients))
    return path


def test_the_last_client_is_hp(tmp_path: Path) -> None:
    jobs = read_jobs(written(tmp_path, client(train=True), client(), client(model_name="bert", rps=50)))
    assert [job.role for job in jobs] == ["be", "be", "hp"]
    assert [job.kind for job in jobs] == ["resnet50-training", "resnet50-inference", "bert-inference"]
    assert jobs[1].options == {"batch": 4}
    assert jobs[0].arrivals == []
    assert len(jobs[2].arrivals) == 40


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("mobilenet_v2", "mobilenetv2-inference"),
        ("transformer", "gpt-prefill"),
        ("gemm", "gemm"),
        ("BERT", "bert-inference"),
    ],
)
def test_the_name_of_a_network_selects_the_workload(tmp_path: Path, name: str, kind: str) -> None:
    (job,) = read_jobs(written(tmp_path, client(model_name=name)))
    assert job.kind == kind


def test_without_a_model_name_the_arch_is_used(tmp_path: Path) -> None:
    (job,) = read_jobs(written(tmp_path, client(model_name="", arch="bert_train", train=True)))
    assert job.kind == "bert-training"


def test_arrivals_are_uniform_random_or_from_a_trace(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text(json.dumps([0.5] * 30 + [1] * 20))
    path = written(tmp_path, client(rps=10, uniform=True), client(rps=10), client(input_file="trace.json"))
    uniform, poisson, traced = read_jobs(path, seed=3)
    assert uniform.arrivals == pytest.approx([0.1 * number for number in range(1, 41)])
    assert poisson.gaps == read_jobs(path, seed=3)[1].gaps != read_jobs(path, seed=4)[1].gaps
    assert traced.arrivals[-1] == 25.0


@pytest.mark.parametrize(
    ("entries", "sentence"),
    [
        ([client(model_name="vgg19")], "there is no network 'vgg19'; there are resnet50, rnet, mobilenetv2"),
        ([client(model_name="mobilenetv2", train=True)], "cannot be trained here; bert, gpt, resnet50 can"),
        ([client(num_iters=10)], "greater than 10"),
        ([client(batchsize=0)], "client 0.args.batchsize: "),
        ([client(rps=1e-310)], "rps 1e-310 is too small: give 1e-06 or more, or 0"),
        ([client(input_file="none.json")], "none.json cannot be read"),
        ([], "at least 1"),
        ([client()] * 13, "at most 12"),
        ([{"arch": "bert"}], "client 0.num_iters: "),
    ],
)
def test_bad_files_are_refused_with_a_reason(tmp_path: Path, entries: list[dict[str, Any]], sentence: str) -> None:
    path = written(tmp_path, *entries)
    with pytest.raises(Unreadable) as refusal:
        read_jobs(path)
    assert sentence in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_missing_file_and_invalid_json_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="No such file"):
        read_jobs(tmp_path / "jobs.json")
    (tmp_path / "jobs.json").write_text("[{")
    with pytest.raises(Unreadable, match="JSON"):
        read_jobs(tmp_path / "jobs.json")


def test_the_example_is_a_job_file() -> None:
    assert [job.role for job in read_jobs(EXAMPLE)] == ["be", "hp"]


def run(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the jobs as `orion launch` does, with the test's build of the hook."""
    command = [sys.executable, "-m", "orion.bench.job_run", "--simulated", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)


def test_jobs_run_and_be_waits_for_hp(tmp_path: Path, preloaded: dict[str, str]) -> None:
    kernels = {"model_name": "gemm", "num_iters": 100_000}
    path = written(tmp_path, client(**kernels), client(model_name="resnet50", batchsize=16, rps=40, num_iters=60))
    done = run(preloaded, str(path), "--json", "--policy", "gate")
    assert done.returncode == 0, done.stderr
    be, hp = json.loads(done.stdout)["clients"]
    assert (be["role"], hp["role"]) == ("be", "hp")
    assert hp["iterations"] == 50
    assert 30 < hp["throughput"] < 50
    assert 0 < hp["p50_ms"] <= hp["p95_ms"] <= hp["p99_ms"]
    assert be["gated_launches"] > 20
    assert 0 < be["iterations"] < 100_000  # be ended when hp ended
    assert be["overlapped_launches"] == 0


def test_ctrl_c_ends_the_jobs_quietly(tmp_path: Path, preloaded: dict[str, str]) -> None:
    path = written(tmp_path, client(num_iters=100_000))
    command = [sys.executable, "-m", "orion.bench.job_run", "--simulated", str(path)]
    with subprocess.Popen(command, env=preloaded, stderr=subprocess.PIPE, text=True) as process:
        maps = Path(f"/proc/{process.pid}/maps")
        eventually(lambda: "/libcuda.so.1" in maps.read_text())
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=100)
    assert process.returncode == 130
    assert errors == ""


def test_the_output_can_be_a_table(tmp_path: Path, preloaded: dict[str, str]) -> None:
    done = run(preloaded, str(written(tmp_path, client(num_iters=12))))
    assert done.returncode == 0, done.stderr
    assert "resnet50-inference" in done.stdout


def test_the_error_without_the_hook_names_the_fix(tmp_path: Path, bare_machine: Machine) -> None:
    done = run(bare_machine.client_environment(None), str(written(tmp_path, client())))
    assert done.returncode == 1
    assert "LD_PRELOAD" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_command_refuses_a_bad_file(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "orion.cli", "launch", str(written(tmp_path, client(model_name="vgg19")))]
    done = subprocess.run(command, env=os.environ, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "there is no network 'vgg19'" in done.stderr


def test_a_client_that_fails_is_named(tmp_path: Path, preloaded: dict[str, str]) -> None:
    (tmp_path / "torch.py").write_text("raise RuntimeError('there is no CUDA here')")
    path = written(tmp_path, client(model_name="gemm"), client())
    command = [sys.executable, "-m", "orion.bench.job_run", str(path)]
    environment = preloaded | {"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 1
    failed = "orion: client 0, gemm (be, gemm), failed: RuntimeError: there is no CUDA here"
    assert done.stderr.splitlines()[-1] == failed
    assert "torch.py" in done.stderr  # the place of the failure


def test_missing_torch_is_reported_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(NotFound, match="torch is not installed"):
        launch(written(tmp_path, client()))
