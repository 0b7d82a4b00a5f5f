"""Scenarios of services: from the file to the log and the report, and what is refused."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from orion.cli.main import main
from orion.errors import NotFound, Unreadable
from orion.simulation.serving import planned, rates, reading, results
from orion.simulation.serving.simulating import simulate

Plain = dict[str, Any]
Change = Callable[[Plain], object]
ENGINE = {
    "stepBase": "8ms", "prefillToken": "20us", "decodeSequence": "10us", "contextToken": "0.5ns", "maxSequences": 8,
    "tokensPerStep": 64, "kvTokens": 600, "admission": "reserve",
}  # fmt: skip


def scenario() -> Plain:
    return {
        "gpus": [{"name": "g0", "type": "H200", "memory": 141}, {"name": "g1"}],
        "seed": 3,
        "seconds": 20,
        "drop": {"rule": "none", "ratio": 1},
        "services": [
            {
                "name": "search",
                "memory": "10Gi",
                "objective": {"latency": "50ms", "quantile": 0.99},
                "latency": [
                    {"batch": 1, "smShare": 1, "medianNs": 4_000_000, "p99Ns": 5_000_000},
                    {"batch": 8, "smShare": 1, "medianNs": 11_000_000, "p99Ns": 12_000_000},
                    {"batch": 8, "smShare": 0.5, "medianNs": 20_000_000, "p99Ns": 22_000_000},
                ],
                "rate": 200,
            },
            {
                "name": "chat",
                "objective": {"timeToFirstToken": "200ms", "timePerOutputToken": "40ms"},
                "engine": ENGINE,
                "rate": 2,
                "lengths": {"prompt": {"uniform": [10, 90]}, "output": 20},
            },
        ],
        "plan": [
            {"gpu": "g0", "order": "edf", "services": [{"name": "search", "batch": 8, "maxDelay": "2ms"}]},
            {"gpu": "g1", "services": [{"name": "chat"}]},
        ],
    }


def write(folder: Path, plain: Plain) -> Path:
    path = folder / "s.yaml"
    path.write_text(yaml.safe_dump(plain))
    return path


def ran(folder: Path, plain: Plain) -> tuple[Plain, list[dict[str, str]]]:
    setting = reading.read(write(folder, plain))
    assert setting.plan is not None
    simulated = simulate(setting, setting.plan)
    return results.report(simulated), list(csv.DictReader(io.StringIO("".join(results.log_lines(simulated)))))


def test_json_log_and_the_same_bytes_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, logs = write(tmp_path, scenario()), [tmp_path / "1.csv", tmp_path / "2.csv"]
    outs = []
    for log in logs:
        assert main(["simulate", "serving", str(path), "--log", str(log), "--json"]) == 0
        outs.append(capsys.readouterr().out)
    assert outs[0] == outs[1]
    assert logs[0].read_bytes() == logs[1].read_bytes()
    report = json.loads(outs[0])
    assert (report["schema"], report["seed"]) == ("orion.simulate.serving/1", 3)
    search, chat = report["services"]
    assert (search["dropped"], search["missed"], search["ttft_ms"]["mean"]) == (0, 0, None)
    assert set(chat["tpot_ms"]) == {"mean", "p50", "p95", "p99", "max"}
    assert [each["gpu"] for each in report["gpus"]] == ["g0", "g1"]
    lines = logs[0].read_text().splitlines()
    assert lines[0] == "service,request,arrival_s,start_s,first_token_s,end_s,gpu,batch,outcome"
    assert len(lines) == 1 + search["requests"] + chat["requests"]
    assert main(["simulate", "serving", str(path)]) == 0
    assert "search" in capsys.readouterr().out


def test_a_file_of_arrivals_by_hand(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("arrival_s\n0.010\n0.001\n0.011\n0.100\n")
    plain = scenario()
    del plain["seconds"], plain["services"][1], plain["plan"][1], plain["services"][0]["rate"]
    plain["services"][0]["arrivals"] = {"file": "a.csv"}
    plain["services"][0]["objective"]["latency"] = "8ms"
    report, rows = ran(tmp_path, plain)
    found = [(row["request"], row["start_s"], row["end_s"], row["batch"], row["outcome"]) for row in rows]
    assert found == [
        ("1", "0.003000000", "0.007000000", "1", "served"),
        ("0", "0.012000000", "0.017000000", "2", "served"),
        ("2", "0.012000000", "0.017000000", "2", "served"),
        ("3", "0.102000000", "0.106000000", "1", "served"),
    ]
    assert report["gpus"][0]["busy"] == pytest.approx(0.013 / 0.106)


def test_a_batch_that_the_share_of_a_part_lacks_is_named(tmp_path: Path) -> None:
    plain = scenario()
    del plain["services"][1], plain["plan"][1]
    plain["services"][0]["latency"] += [
        {"batch": size, "smShare": 0.2, "medianNs": size * 9_000_000} for size in (1, 2)
    ]
    plain["plan"][0]["share"] = 20
    (note,) = ran(tmp_path, plain)[0]["notes"]
    assert "was measured up to a batch of 2 for 20 % of a GPU" in note


def test_names_with_commas_and_quotation_marks_are_cells_of_the_log(tmp_path: Path) -> None:
    plain = scenario()
    del plain["services"][1], plain["plan"][1]
    plain["services"][0]["name"] = plain["plan"][0]["services"][0]["name"] = 'search,"new"'
    plain["gpus"][0]["name"] = plain["plan"][0]["gpu"] = 'g,"0"'
    first = ran(tmp_path, plain)[1][0]
    assert (first["service"], first["gpu"], first["outcome"]) == ('search,"new"', 'g,"0"', "served")


def test_two_parts_of_one_gpu_slow_each_other_and_share_the_requests(tmp_path: Path) -> None:
    plain = scenario()
    plain["services"][1] = {**plain["services"][0], "name": "other", "rate": 50}
    plain["slowdowns"] = {"search": {"other": 1.5}}
    plain["plan"] = [
        {"gpu": "g0", "share": 50, "services": [{"name": "search", "batch": 8, "throughput": 1}]},
        {"gpu": "g0", "share": 0.5, "services": [{"name": "other", "batch": 8}]},
        {"gpu": "g1", "services": [{"name": "search", "batch": 8, "throughput": 3}]},
    ]
    report, rows = ran(tmp_path, plain)
    counts = [sum(row["gpu"] == gpu and row["service"] == "search" for row in rows) for gpu in ("g0", "g1")]
    assert abs(3 * counts[0] - counts[1]) <= 4
    times = {
        (row["service"], round(float(row["end_s"]) - float(row["start_s"]), 9)) for row in rows if row["gpu"] == "g0"
    }
    assert times == {("search", 0.03), ("other", 0.02)}
    assert [part["way"] for part in report["plan"]] == ["part", "part", "exclusive"]


def test_nothing_arrives_at_a_rate_of_zero(tmp_path: Path) -> None:
    plain = scenario()
    for service in plain["services"]:
        service["rate"] = 0
    report, rows = ran(tmp_path, plain)
    assert rows == []
    for service in report["services"]:
        assert (service["requests"], service["miss_ratio"]) == (0, None)
        assert service["latency_ms"]["p99"] is None


def test_an_objective_that_nothing_can_hold_is_named_with_the_best_time(tmp_path: Path) -> None:
    plain = scenario()
    plain["services"][0]["objective"]["latency"] = "3ms"
    report, _ = ran(tmp_path, plain)
    assert report["notes"] == [
        "the service search: nothing can hold its objective of 3 ms, because one request takes at least 4 ms"
    ]
    assert report["services"][0]["miss_ratio"] == 1


def search(**fields: object) -> Change:
    return lambda plain: plain["services"][0].update(fields)


def chat(**fields: object) -> Change:
    return lambda plain: plain["services"][1].update(fields)


def top(**fields: object) -> Change:
    return lambda plain: plain.update(fields)


def part(**fields: object) -> Change:
    return lambda plain: plain["plan"][0].update(fields)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (search(rate=-1), r"services\[0\]\.rate \(search\): it must be greater than or equal to 0, not -1"),
        (search(rate=float("nan")), r"services\[0\]\.rate \(search\): it must be a finite number, not nan"),
        (search(rate=1e12), "the service search gets 2e.13 requests, and a simulation has at most 50,000,000"),
        (search(memory=200), "the services of GPU g0 need 200 GB of its 141 GB"),
        (search(rates=1), "there is no field 'rates'; there are name, memory, objective, latency,"),
        (search(objective={"latency": 50}), "must be a duration such as 400us"),
        (search(objective={"timeToFirstToken": "1s"}), "only a service with an engine gives tokens one by one"),
        (search(ratesFile="r.csv"), "give one of rate, ratesFile and arrivals"),
        (search(latency=[{"batch": 8, "smShare": 1, "medianNs": 1}, {"batch": 9, "smShare": 1, "medianNs": 10}]),
         "gives no time for a batch of 1"),
        (chat(lengths={"prompt": 500, "output": 200}), "a request has 700 tokens, and kvTokens is 600"),
        (chat(lengths=None), "an engine's requests have lengths"),
        (top(gpus=[]), "gpus: List should have at least 1 item"),
        (top(seconds=None), "give seconds: for how long requests arrive"),
        (top(drop={"rule": "late"}), "drop.rule: it must be 'none', 'lazy' or 'eager', not 'late'"),
        (top(slowdowns={"search": {"x": 2}}), "slowdowns: there is no service 'x'; there are search, chat"),
        (part(gpu="g7"), r"plan\[0\]: there is no GPU 'g7'; there are g0, g1"),
        (part(gpu="g1"), "the parts of GPU g1 have 200 % of it together"),
        (part(services=[{"name": "x"}]), r"plan\[0\]: there is no service 'x'; there are search, chat"),
        (part(services=[{"name": "search"}, {"name": "search"}]), "has the service search twice"),
        (part(services=[{"name": "search"}, {"name": "chat"}]), "the service chat has an engine, which shares no part"),
        (part(share=12.5), "the share 12.5 % is no whole number of percent"),
        (lambda plain: plain["plan"].pop(), "the plan has no part for the service chat"),
        (lambda plain: plain["gpus"].append({"name": "g0"}), "the name 'g0' is there twice"),
    ],
)  # fmt: skip
def test_what_cannot_be_simulated_is_refused_with_a_sentence(change: Change, sentence: str, tmp_path: Path) -> None:
    plain = scenario()
    change(plain)
    with pytest.raises((NotFound, Unreadable), match=sentence):
        ran(tmp_path, plain)


@pytest.mark.parametrize("text", ["", "[1]", "a: [}", "\x00", "gpus: 2024-13-13"])
def test_a_file_that_is_no_scenario_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(text)
    with pytest.raises(Unreadable, match=r"s\.yaml"):
        reading.read(path)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("arrival_s\n1\nx\n", "line 3: arrival_s is 'x', which is no number"),
        ("arrival_s\n-1\n", "line 2: arrival_s is '-1', and must be from 0"),
        ("arrival_s,prompt_tokens,output_tokens\n1,5\n", "line 2: the line has 2 columns in place of 3"),
        ("arrival_s\n1\n", "has no tokens"),
        ("", "is empty"),
        ("0,alexnet,8,23349,1\n", "holds jobs"),
    ],
)
def test_a_file_of_arrivals_that_is_wrong_is_refused(text: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(text)
    plain = scenario()
    del plain["services"][1]["rate"], plain["services"][1]["lengths"]
    plain["services"][1]["arrivals"] = {"file": "a.csv"}
    with pytest.raises(Unreadable, match=sentence):
        ran(tmp_path, plain)


def test_a_public_trace_gives_arrivals_and_tokens(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,39,109\n"
    )
    plain = scenario()
    del plain["services"][1]["rate"], plain["services"][1]["lengths"]
    plain["services"][1]["arrivals"] = {"file": "a.csv"}
    _, rows = ran(tmp_path, plain)
    assert [row["arrival_s"] for row in rows if row["service"] == "chat"] == ["0.000000000", "4.314579000"]


PROFILE = """
apiVersion: orion.gpu/v1alpha1
kind: GPUProfile
metadata: {name: search}
spec:
  gpu: {model: NVIDIA H200, sms: 132}
  source: {kind: cupti}
  kernels: []
  latency:
  - {batch: 1, smShare: 1, medianNs: 4000000, p99Ns: 5000000}
  - {batch: 8, smShare: 1, medianNs: 11000000, p99Ns: 12000000}
"""


def test_times_of_batches_come_from_a_profile_of_the_same_gpu(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(PROFILE)
    plain = scenario()
    expected = ran(tmp_path, plain)
    del plain["services"][0]["latency"]
    plain["services"][0]["profile"] = "p.yaml"
    assert ran(tmp_path, plain) == expected
    plain["gpus"][0]["type"] = "A100"
    with pytest.raises(Unreadable, match="measured on NVIDIA H200, and GPU g0 is of type A100"):
        ran(tmp_path, plain)
    del plain["services"][1], plain["plan"]
    with pytest.raises(NotFound, match="measured on NVIDIA H200, not on A100"):
        planned.plan(reading.read(write(tmp_path, plain)), "temporal")
    (tmp_path / "p.yaml").write_text(PROFILE.partition("  latency:")[0])
    with pytest.raises(Unreadable, match="has no latency"):
        ran(tmp_path, plain)


def test_the_log_never_replaces_a_file_that_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arrivals = tmp_path / "a.csv"
    arrivals.write_text("arrival_s,prompt_tokens,output_tokens,model\n1,5,3,a\n2,5,0,b\n")
    plain = scenario()
    del plain["services"][1]["rate"], plain["services"][1]["lengths"]
    plain["services"][1]["arrivals"] = {"file": "a.csv"}
    path = write(tmp_path, plain)
    for log in (path, arrivals):
        before = log.read_text()
        assert main(["simulate", "serving", str(path), "--log", str(log)]) == 2
        assert "the scenario is read from that file" in capsys.readouterr().err
        assert log.read_text() == before


def test_a_full_disk_leaves_no_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(simulated: object) -> Any:
        yield results.LOG_HEADER
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(results, "log_lines", full)
    assert main(["simulate", "serving", str(write(tmp_path, scenario())), "--log", str(tmp_path / "l.csv")]) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s.yaml"]


@pytest.mark.parametrize("planner", ["orion", "glet", "greedy", "temporal", "full-search"])
def test_a_planner_plans_a_scenario_without_a_plan(planner: str, tmp_path: Path) -> None:
    plain = scenario()
    del plain["services"][1], plain["plan"]
    plain["services"][0]["latency"].append({"batch": 1, "smShare": 0.2, "medianNs": 9_000_000})
    setting = reading.read(write(tmp_path, plain))
    found = planned.plan(setting, planner).plan
    assert {each.service for part in found.parts for each in part.services} == {"search"}
    assert results.report(simulate(setting, found))["services"][0]["requests"] > 0


def test_a_share_below_the_measured_ones_is_not_as_fast_as_the_smallest_of_them(tmp_path: Path) -> None:
    plain = scenario()
    del plain["services"][1], plain["plan"]
    plain["services"][0] |= {
        "objective": {"latency": "20ms"},
        "latency": [{"batch": 1, "smShare": share, "medianNs": 9_000_000} for share in (0.5, 1)],
        "rate": 20,
    }
    setting = reading.read(write(tmp_path, plain))
    parts = planned.plan(setting, "glet").plan.parts
    assert min(part.share for part in parts) > 20  # where a request would take 22.5 ms
    with pytest.raises(NotFound, match="no place"):  # greedy looks at the rate alone, and takes 20 %
        planned.plan(setting, "greedy")


def test_the_planner_orion_uses_the_gpus_on_which_profiles_were_measured(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(PROFILE)
    plain = scenario()
    del plain["services"][1], plain["plan"], plain["services"][0]["latency"]
    plain["services"][0]["profile"] = "p.yaml"
    plain["gpus"] = [{"name": "a", "type": "A100"}, {"name": "h", "type": "H200"}]
    found = planned.plan(reading.read(write(tmp_path, plain)), "orion").plan
    assert [part.gpu for part in found.parts] == [1]


def test_an_engine_gets_the_fewest_gpus_that_hold_its_objective(tmp_path: Path) -> None:
    plain = scenario()
    del plain["plan"]
    plain["gpus"].append({"name": "g2"})
    for rate, gpus in ((2, [2]), (50, [1, 2])):
        plain["services"][1]["rate"] = rate
        found = planned.plan(reading.read(write(tmp_path, plain)), "temporal").plan
        assert [part.gpu for part in found.parts if part.services[0].service == "chat"] == gpus
        assert not {part.gpu for part in found.parts if part.services[0].service == "search"} & set(gpus)


def planless(change: Change) -> Change:
    return lambda plain: (plain.pop("plan"), plain["services"].pop(), change(plain))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda plain: (plain.pop("plan"), plain["gpus"].pop()), "engines take all GPUs, and search needs one"),
        (lambda plain: (plain.pop("plan"), chat(rate=500)(plain)), "the engine chat: .* are late on 2 GPUs"),
        (planless(search(rate=100_000)), "the planner temporal finds no plan"),
        (planless(search(objective={"latency": "3ms"})), "nothing can hold the objective of 3 ms .* at least 4 ms"),
    ],
)
def test_a_scenario_that_cannot_be_planned_is_refused_with_the_reason(
    change: Change, sentence: str, tmp_path: Path
) -> None:
    plain = scenario()
    change(plain)
    with pytest.raises(NotFound, match=sentence):
        planned.plan(reading.read(write(tmp_path, plain)), "temporal")


def test_an_unknown_planner_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "serving", str(write(tmp_path, scenario())), "--planner", "x"]) == 2
    assert "--planner cannot be 'x': the planners are orion, glet," in capsys.readouterr().err


def test_rates_files_of_both_forms(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text("seconds,rate\n0,10\n# noon\n5.5,0\n10,20.5\n")
    assert rates.read(path).steps == ((0.0, 10.0), (5.5, 0.0), (10.0, 20.5))
    assert rates.read(path).expected(12) == 10 * 5.5 + 2 * 20.5
    path.write_text("10\n0\n30\n")
    glet = rates.read(path)
    assert (glet.steps, glet.ends_s) == (((0.0, 10.0), (20.0, 0.0), (40.0, 30.0)), 60.0)
    assert glet.expected(1000) == 800
    for text, sentence in (
        ("", "has no rates"),
        ("seconds,rate\n", "has no rates"),
        ("10\n-2\n", "line 2: the rate is '-2'"),
        ("0,1\n0,2\n", "line 2: the time 0 is not after"),
        ("0,nan\n", "line 1: the rate is 'nan', which is no number"),
        ("1,2,3\n", "line 1: the line has 3 columns in place of 2"),
    ):
        path.write_text(text)
        with pytest.raises(Unreadable, match=sentence):
            rates.read(path)


STEP = st.tuples(st.sampled_from([0.5, 1.0, 7.25]), st.sampled_from([0.0, 1.0, 3.5, 100.0]))


@given(
    st.lists(STEP, min_size=1, max_size=5),
    st.floats(0.1, 30),
    st.sampled_from(rates.PROCESSES),
)  # fmt: skip
def test_arrivals_follow_the_rates(steps: list[tuple[float, float]], seconds: float, process: str) -> None:
    edges = np.cumsum([0.0, *(gap for gap, _ in steps)])[:-1].tolist()
    found = rates.Rates(tuple(zip(edges, (rate for _, rate in steps), strict=True)))
    arrivals = found.arrivals(seconds, process, np.random.default_rng(1))
    assert (np.diff(arrivals) >= 0).all()
    assert not len(arrivals) or 0 <= arrivals[0] <= arrivals[-1] < seconds * 1e9
    expected = found.expected(seconds)
    assert abs(len(arrivals) - expected) <= (1.01 if process == "uniform" else 6 * np.sqrt(expected) + 6)
    for (begin, end), (_, rate) in zip(zip(edges, [*edges[1:], np.inf], strict=True), steps, strict=True):
        if rate == 0:
            assert not ((arrivals > begin * 1e9 + 1) & (arrivals < end * 1e9 - 1)).any()
