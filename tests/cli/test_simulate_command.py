"""`orion simulate cluster`: files, JSON, options, and what is refused."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from orion.cli.main import main
from orion.simulation.cluster import runs

Call = Callable[..., tuple[int, str, str]]
MODEL = {"cpus": 6, "mem": 100.0, "speed": 50.0, "speedup": 1.5, "iter_time": 0.5}
INI = "[CLUSTER]\nracks = 1\nservers_per_rack = 2\ngpus_per_server = 4\ncpus_per_server = 12\n" + (
    "dram_per_server = 250\nsspeed_per_server = 250\n"
)
MODELS = ("alexnet", "res18", "res50", "mobilenet", "shufflenet", "gnmt", "transformer", "lstm", "m5", "deepspeech")


@pytest.fixture
def simulate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Call:
    (tmp_path / "cluster.ini").write_text(INI)
    profiles = {f"{model}_1": {**MODEL, "cpus": 1 + index % 6} for index, model in enumerate(MODELS)}
    (tmp_path / "profiles.json").write_text(json.dumps({"models": profiles}))
    (tmp_path / "jobs.trace").write_text("0,gnmt,0,1000,1\n1,m5,10,4000,4\n2,res18,20,100,2\n")

    def call(*arguments: str | Path, cluster: str = "cluster.ini") -> tuple[int, str, str]:
        given = ["--cluster", tmp_path / cluster, "--profiles", tmp_path / "profiles.json", "--no-pictures"]
        status = main(["simulate", "cluster", *map(str, given), *map(str, arguments)])
        reported = capsys.readouterr()
        return status, reported.out, reported.err

    return call


def test_files_and_json(simulate: Call, tmp_path: Path) -> None:
    output = tmp_path / "out"
    status, out, err = simulate(
        "--replay", tmp_path / "jobs.trace", "--schedulers", "FIFO+fair,SRTF+opt", "-o", output, "--json"
    )
    assert (status, err) == (0, "")
    report = json.loads(out)
    assert report["schema"] == "orion.simulate.cluster/1"
    assert report["compatible"] is None
    first = report["runs"][0]
    assert (first["scheduler"], first["rate"], first["seed"], first["jobs"], first["finished"]) == (
        "FIFO+fair", None, None, 3, 3,
    )  # fmt: skip
    assert set(first["jct_h"]) == {"mean", "p50", "p99", "max"}
    assert report["runs"][1]["bound"]["speed"] >= report["runs"][1]["bound"]["reached"] - 1e-9
    lines = (output / "jobs.csv").read_text().splitlines()
    assert lines[0] == "scheduler,rate,seed,job_id,model,gpus,arrival_s,start_s,finish_s,jct_s,fair_s,restarts"
    assert lines[1] == "FIFO+fair,,,0,gnmt,1,0,0,500,500,500,0"
    assert len(lines) == 1 + 2 * 3
    assert (
        (output / "rounds.csv")
        .read_text()
        .startswith(
            "scheduler,rate,seed,time_s,queued,running,gpus,cpus,memory_gb,storage_mbps,speed\nFIFO+fair,,,0,0,1,1,3,62.5,62.5,1\n"
        )
    )
    assert report["files"] == [str(output / name) for name in ("jobs.csv", "rounds.csv", "summary.json")]
    assert sorted(path.name for path in output.iterdir()) == ["jobs.csv", "rounds.csv", "summary.json"]


def test_the_page_holds_the_answer_and_every_picture(simulate: Call, tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    page = tmp_path / "page.html"
    asked = ["--generate", "20", "--rate", "6,7", "--schedulers", "FIFO+fair,SRTF+tune", "-o", tmp_path / "out"]
    status, _, err = simulate(*asked, "--html", page, "--json")
    assert (status, err) == (0, "")
    text = page.read_text()
    assert "At 7 jobs an hour, a job takes" in text
    assert text.count("<svg") == 1 + 2 * 2
    assert "Queue and use over time" in text
    assert 'src="http' not in text
    assert not list((tmp_path / "out").glob("*.svg"))


def test_workers_and_an_interruption_change_no_byte(
    simulate: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ["--generate", "30", "--rate", "2,4", "--seed", "1,2", "--schedulers", "FIFO+tune,LAS+fair"]
    assert simulate(*asked, "-o", tmp_path / "one")[0] == 0
    assert simulate(*asked, "-o", tmp_path / "two", "--workers", "2")[0] == 0
    made: list[runs.Task] = []
    make = runs.make

    def interrupted(task: runs.Task, progress: Callable[[int], None]) -> None:
        if len(made) == 3:
            raise KeyboardInterrupt
        made.append(task)
        make(task, progress)

    with monkeypatch.context() as patched:
        patched.setattr(runs, "make", interrupted)
        status, _, err = simulate(*asked, "-o", tmp_path / "three")
    assert status == 130
    assert "3 of 8 runs are kept" in err
    assert not (tmp_path / "three" / "jobs.csv").exists()
    assert simulate(*asked, "-o", tmp_path / "three")[0] == 0
    for name in ("jobs.csv", "rounds.csv", "summary.json"):
        assert len({(tmp_path / folder / name).read_bytes() for folder in ("one", "two", "three")}) == 1


def test_rates_and_seeds_of_equal_jobs_stay_apart(simulate: Call, tmp_path: Path) -> None:
    asked = ["--generate", "5", "--rate", "6,7", "--static", "--schedulers", "FIFO+fair", "-o", tmp_path / "out"]
    status, out, _ = simulate(*asked, "--json")
    assert status == 0
    assert [run["rate"] for run in json.loads(out)["runs"]] == [6, 7]
    lines = (tmp_path / "out" / "jobs.csv").read_text().splitlines()[1:]
    assert [line.split(",")[1] for line in lines] == ["6"] * 5 + ["7"] * 5


def test_a_large_seed_keeps_all_of_its_digits(simulate: Call, tmp_path: Path) -> None:
    seed = 2**53 + 1
    asked = ["--generate", "2", "--rate", "6", "--seed", str(seed), "--schedulers", "FIFO+fair", "-o", tmp_path / "out"]
    assert json.loads(simulate(*asked, "--json")[1])["runs"][0]["seed"] == seed
    assert f" {seed} " in simulate(*asked)[1]


def test_opt_that_fits_nowhere_is_one_sentence(simulate: Call, tmp_path: Path) -> None:
    (tmp_path / "few.ini").write_text(INI.replace("cpus_per_server = 12", "cpus_per_server = 1"))
    path = tmp_path / "profiles.json"
    path.write_text(json.dumps({"models": {"gnmt_1": {**MODEL, "tput": [[1.0] * 5] * 9}}}))
    (tmp_path / "jobs.trace").write_text("".join(f"{job},gnmt,0,1000,1\n" for job in range(8)))
    asked = ["--replay", tmp_path / "jobs.trace", "--schedulers", "FIFO+opt", "-o", tmp_path / "out"]
    status, _, err = simulate(*asked, "--compatible", "synergy", cluster="few.ini")
    assert (status, err.count("\n")) == (1, 1)
    assert "opt found no shares for 8 jobs" in err


def test_profiles_of_another_gpu_model_are_refused_beside_any_other(simulate: Call, tmp_path: Path) -> None:
    server = "{gpus: 4, cpus: 12, memory: 250, gpu: %s}"
    (tmp_path / "c.yaml").write_text(f"servers: [{server % 'H200'}, {server % 'A100'}]")
    models = {f"{model}_1": {**MODEL, "gpu": "A100"} for model in ("gnmt", "m5", "res18")}
    (tmp_path / "profiles.json").write_text(json.dumps({"models": models}))
    asked = ["--replay", tmp_path / "jobs.trace", "--schedulers", "FIFO+fair", "-o", tmp_path / "out"]
    status, _, err = simulate(*asked, cluster="c.yaml")
    assert status == 1
    assert "the profiles are of A100" in err
    assert "has H200" in err


def test_a_cluster_with_a_byte_order_mark_is_read(simulate: Call, tmp_path: Path) -> None:
    (tmp_path / "bom.ini").write_text(INI, encoding="utf-8-sig")
    asked = ["--replay", tmp_path / "jobs.trace", "--schedulers", "FIFO+fair", "-o", tmp_path / "out"]
    assert simulate(*asked, cluster="bom.ini")[0] == 0


def test_a_worker_that_is_killed_is_one_sentence(
    simulate: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ["--generate", "5", "--rate", "6,7", "--schedulers", "FIFO+fair", "-o", tmp_path / "out", "--workers", "2"]
    monkeypatch.setattr(runs, "make", killed)
    status, _, err = simulate(*asked)
    assert (status, err.count("\n")) == (1, 1)
    assert "--workers" in err


def killed(task: runs.Task) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_full_disk_leaves_no_half_file(simulate: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    status, _, err = simulate("--replay", tmp_path / "jobs.trace", "--schedulers", "FIFO+fair", "-o", tmp_path / "out")
    assert status == 1
    assert "No space left on device" in err
    assert not (tmp_path / "out" / "jobs.csv").exists()


def test_a_recording_replays_as_it_was_generated(simulate: Call, tmp_path: Path) -> None:
    recorded = tmp_path / "recorded.trace"
    asked = ["--schedulers", "SRTF+tune", "--compatible", "synergy"]
    generated = ["--generate", "20", "--rate", "3", "--gpu-mix", "multi", "--record", recorded]
    simulate(*generated, "--skip-unfit", *asked, "-o", tmp_path / "a")
    simulate("--replay", recorded, "--skip-unfit", *asked, "-o", tmp_path / "b")
    first, second = ((tmp_path / folder / "jobs.csv").read_text() for folder in "ab")
    assert first.replace(",3,42,", ",,,") == second


def test_a_window_counts_its_jobs_alone(simulate: Call, tmp_path: Path) -> None:
    asked = ["--replay", tmp_path / "jobs.trace", "--schedulers", "FIFO+fair", "-o", tmp_path / "out", "--json"]
    status, out, _ = simulate(*asked, "--window", "0:0")
    assert status == 0
    run = json.loads(out)["runs"][0]
    assert (run["jobs"], run["finished"], run["rounds"]) == (1, 1, 2)


@pytest.mark.parametrize(
    ("arguments", "status", "named"),
    [
        (["--generate", "5"], 2, "--rate"),
        (["--generate", "5", "--rate", "0"], 2, "1e-06 or more"),
        (["--generate", "5", "--rate", "1e-308"], 2, "1e-06 or more"),
        (["--generate", "5", "--rate", "1", "--seed", "1.5"], 2, "whole numbers"),
        (["--generate", "5", "--rate", "nan"], 2, "--rate"),
        (["--generate", "5", "--rate", "1", "--split", "1,2"], 2, "three parts"),
        (["--generate", "5", "--rate", "1", "--gpu-mix", "all"], 2, "single or multi"),
        (["--generate", "5", "--rate", "1", "--schedulers", "BEST+fair"], 2, "FIFO-STRICT"),
        (["--generate", "5", "--rate", "1", "--schedulers", "SRSF+fair", "--compatible", "synergy"], 2, "SRSF"),
        (["--generate", "5", "--rate", "1", "--compatible", "gavel"], 2, "synergy"),
        (["--generate", "5", "--rate", "1", "--placement", "tight"], 2, "packed"),
        (["--generate", "5", "--rate", "1", "--restart-cost", "300"], 2, "--round"),
        (["--generate", "5", "--rate", "1", "--window", "9:3"], 2, "--window"),
        (["--generate", "5", "--rate", "1", "--profile-set", "models-9"], 1, "choose one of models"),
        (["--generate", "5", "--rate", "1", "--replay", "x"], 2, "either"),
        (["--replay", "/nowhere/x"], 1, "/nowhere/x"),
    ],
)
def test_what_is_wrong_is_one_sentence(
    simulate: Call, tmp_path: Path, arguments: list[str], status: int, named: str
) -> None:
    found, out, err = simulate("--schedulers", "FIFO+fair", "-o", tmp_path / "out", *arguments)
    assert (found, out) == (status, "")
    assert named in err
    assert err.count("\n") == 1


def test_bad_lines_and_large_jobs_are_named_or_left_out(simulate: Call, tmp_path: Path) -> None:
    trace = tmp_path / "bad.trace"
    trace.write_text("0,gnmt,0,1000,1\n1,gnmt,zero,1000,1\n2,gnmt,5,1000,16\n0,gnmt,5,10,1\n")
    asked = ["--replay", trace, "--schedulers", "FIFO+fair", "-o", tmp_path / "out", "--json"]
    assert "bad.trace, line 2" in simulate(*asked)[2]
    status, _, err = simulate(*asked, "--skip-bad")
    assert status == 1
    assert "job 2 asks for 16 GPUs" in err
    assert "has 8" in err
    status, out, _ = simulate(*asked, "--skip-bad", "--skip-unfit")
    assert status == 0
    report = json.loads(out)
    assert report["runs"][0]["refused"] == 1
    assert [each["line"] for each in report["skipped"]] == [2, 4]


def test_shared_gpus_do_not_exist_in_the_compatible_mode(simulate: Call, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("servers: [{gpus: 4, cpus: 12, memory: 250, hp: {busy: 0.2}}]")
    asked = ["--replay", tmp_path / "jobs.trace", "--schedulers", "FIFO+fair", "-o", tmp_path / "out"]
    assert simulate(*asked, cluster="c.yaml")[0] == 0
    status, _, err = simulate(*asked, "--compatible", "synergy", cluster="c.yaml")
    assert status == 1
    assert "servers with hp" in err


def test_profiles_with_holes_are_interpolated_and_wrong_ones_refused(simulate: Call, tmp_path: Path) -> None:
    path = tmp_path / "profiles.json"
    matrix = [[1.0 + row / 10] * 5 for row in range(9)]
    matrix[3] = [0.0] * 5
    models = {"gnmt_1": {**MODEL, "tput": matrix}, "m5_1": MODEL, "res18_1": MODEL}
    path.write_text(json.dumps({"models": models}))
    asked = ["--replay", tmp_path / "jobs.trace", "--schedulers", "FIFO+tune", "-o", tmp_path / "out", "--json"]
    status, out, err = simulate(*asked)
    assert status == 0
    assert "5 points of tput of gnmt were not measured" in err
    assert json.loads(out)["notes"]
    path.write_text('{"models": ' + "[" * 100_000)
    assert "no JSON" in simulate(*asked)[2]
    path.write_text(json.dumps({"models": {**models, "gnmt_1": {**MODEL, "iter_time": 0}}}))
    assert "iter_time" in simulate(*asked)[2]
