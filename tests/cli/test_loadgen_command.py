"""`orion loadgen`: what people and scripts see."""

import csv
import json
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiohttp import web

from orion.cli.main import main
from tests.bench.http_server import serving

Call = Callable[..., tuple[int, str, str]]
FIELDS = {"schema", "requests", "missed", "errors", "behind_ms", "latency_ms", "ttft_ms", "tpot_ms"}
BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"


@pytest.fixture
def loadgen(capsys: pytest.CaptureFixture[str]) -> Call:
    def call(*arguments: str | Path) -> tuple[int, str, str]:
        status = main(["loadgen", *map(str, arguments)])
        reported = capsys.readouterr()
        return status, reported.out, reported.err

    return call


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path == "/missing":
            return web.Response(status=404)
        if request.path != "/v1/completions":
            return web.Response(text="hello")
        fields = await request.json()
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for _ in range(fields["max_tokens"]):
            await response.write(b'data: {"choices": [{"text": "a"}]}\n\n')
        await response.write(f'data: {{"model": "{fields["model"]}"}}\n\ndata: [DONE]\n\n'.encode())
        return response

    with serving(answer) as url:
        yield url.rstrip("/")


def test_figures_as_json_and_the_log_agree(loadgen: Call, server: str, tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    status, out, _ = loadgen(
        server,
        "--rate",
        100,
        "--duration",
        "500ms",
        "--arrivals",
        "uniform",
        "--objective",
        "1m",
        "--log",
        log,
        "--json",
    )
    found, rows = json.loads(out), list(csv.DictReader(log.read_text().splitlines()))
    assert status == 0
    assert set(found) >= FIELDS
    assert (found["schema"], found["requests"], found["missed"], found["errors"]) == ("orion.loadgen/1", 50, 0, 0)
    assert (found["ttft_ms"], found["tpot_ms"]) == (None, None)
    assert list(rows[0]) == ["due_s", "sent_s", "end_s", "status"]
    latencies = [1e3 * (float(row["end_s"]) - float(row["due_s"])) for row in rows]
    assert found["latency_ms"]["max"] == pytest.approx(max(latencies), abs=1e-5)
    assert {row["status"] for row in rows} == {"200"}


def test_people_read_counts_latencies_and_lateness(loadgen: Call, server: str) -> None:
    status, out, _ = loadgen(server, "--rate", 50, "--duration", "200ms", "--arrivals", "uniform", "--objective", "1h")
    assert status == 0
    assert f"{server}: 10 requests (10 x 200)\nmissed the objective of 3.6e+06 ms: 0 (0.00%)\n" in out
    assert "latency (ms)" in out
    assert "sent late by at most" in out
    assert "\x1b" not in out


def test_a_rate_of_zero_sends_nothing(loadgen: Call, server: str) -> None:
    status, out, err = loadgen(server, "--rate", 0, "--duration", "60s", "--json")
    assert (status, err) == (0, "")
    found = json.loads(out)
    assert (found["requests"], found["errors"], found["behind_ms"]) == (0, 0, None)
    assert set(found["latency_ms"].values()) == {None}
    assert loadgen(server, "--rate", 0)[0] == 0


def test_a_trace_shapes_the_requests_to_a_model(loadgen: Call, server: str, tmp_path: Path) -> None:
    trace, log, hdr = tmp_path / "trace.csv", tmp_path / "log.csv", tmp_path / "run.hlog"
    trace.write_text(
        f"{BURST}7,GPT-4,10,4,14,API log\n7.1,GPT-4,20,2,22,API log\n7.2,GPT-4,9,0,9,API log\n9,GPT-4,20,2,22,API log\n"
    )
    pytest.importorskip("hdrh", reason="hdrhistogram, of the extra `plan`, is not installed")
    status, out, _ = loadgen(
        f"{server}/v1/completions", "--trace", trace, "--duration", "1s", "--stream", "--model", "m", "--log", log,
        "--hdr", hdr, "--json",
    )  # fmt: skip
    found, rows = json.loads(out), list(csv.DictReader(log.read_text().splitlines()))
    assert status == 0
    assert (found["requests"], found["errors"], found["output_tokens"]) == (2, 0, 6)
    assert found["ttft_ms"]["p50"] > 0
    assert found["tpot_ms"]["p50"] >= 0
    assert [(float(row["due_s"]), row["tokens"]) for row in rows] == [(0.0, "4"), (pytest.approx(0.1), "2")]
    assert "Tag=tpot,0.000,1.000," in hdr.read_text()


def test_statuses_that_are_errors_are_named_and_do_not_fail_the_command(loadgen: Call, server: str) -> None:
    status, out, err = loadgen(
        f"{server}/missing", "--rate", 20, "--duration", "100ms", "--arrivals", "uniform", "--json"
    )
    assert status == 0
    assert json.loads(out)["errors"] == 2
    assert "orion: 2 of 2 requests failed: 2 x 404\n" in err


def test_a_server_that_answers_nothing_fails_the_command_after_the_report(loadgen: Call) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/"
        status, out, err = loadgen(url, "--rate", 20, "--duration", "100ms", "--arrivals", "uniform", "--json")
    assert status == 1
    assert json.loads(out)["statuses"] == {"refused": 2}
    assert f"orion: {url} answered none of 2 requests: check the URL and the server\n" in err


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        ([], 2, "give one of --rate R, --rates FILE and --trace FILE"),
        (["--rate", "1", "--trace", "x"], 2, "give one of"),
        (["--rate", "-1"], 2, "--rate cannot be -1.0"),
        (["--rate", "nan"], 2, "--rate cannot be nan"),
        (["--rate", "inf"], 2, "--rate cannot be inf"),
        (["--rate", "1e9"], 2, "at most 50,000,000"),
        (["--rate", "1", "--duration", "60"], 2, "--duration must be a duration such as"),
        (["--rate", "1", "--duration", "0s"], 2, "--duration must be more than 0"),
        (["--rate", "1", "--objective", "soon"], 2, "--objective must be a duration such as"),
        (["--rate", "1", "--timeout", "-1s"], 2, "--timeout must be a duration such as"),
        (["--rate", "1", "--arrivals", "bursts"], 2, "choose one of poisson, uniform"),
        (["--trace", "x", "--arrivals", "poisson"], 2, "--arrivals cannot be given with --trace"),
        (["--rate", "1", "--model", "m"], 2, "--model needs --stream"),
        (["--rate", "1", "--header", "x"], 2, "--header cannot be 'x'"),
        (["--rate", "1", "--body", "nothing"], 1, "nothing cannot be read: No such file or directory"),
        (["--rates", "nothing"], 1, "nothing cannot be read: No such file or directory"),
        (["--trace", "nothing"], 1, "nothing cannot be read: No such file or directory"),
        (["--rate", "1", "--log", "nowhere/log.csv"], 1, "there is no folder nowhere"),
        (["--rate", "1", "--body", "x", "--log", "x"], 2, "x is given twice: give another file for --log or --hdr"),
        (["--rate", "1", "--log", "/"], 2, "/ cannot be written: it is a folder"),
    ],
)
def test_what_cannot_be_done_gets_one_sentence(loadgen: Call, arguments: list[str], status: int, said: str) -> None:
    found, out, err = loadgen("http://127.0.0.1:1/", *arguments)
    assert (found, out) == (status, "")
    assert said in err
    assert err.count("\n") == 1


def test_a_url_that_is_none_gets_one_sentence(loadgen: Call) -> None:
    status, _, err = loadgen("localhost:8000", "--rate", 1)
    assert status == 2
    assert "the URL cannot be 'localhost:8000': give one such as http://" in err


def test_a_rates_file_without_an_end_needs_a_duration(loadgen: Call, tmp_path: Path) -> None:
    path = tmp_path / "rates.csv"
    path.write_text("seconds,rate\n0,10\n")
    status, _, err = loadgen("http://127.0.0.1:1/", "--rates", path)
    assert status == 2
    assert "the last rate has no end: give --duration" in err


def _silent_run(
    tmp_path: Path, *arguments: str, files: int | None = None
) -> tuple["subprocess.Popen[str]", socket.socket]:
    """Start the command against a server that accepts connections and answers nothing."""
    server = socket.create_server(("127.0.0.1", 0), backlog=1000)
    url = f"http://127.0.0.1:{server.getsockname()[1]}/"
    command = [sys.executable, "-m", "orion.cli", "loadgen", url, *arguments, "--json", "--log", str(tmp_path / "log")]
    limit = (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))) if files else None
    run = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=limit, env=dict(os.environ)
    )
    return run, server


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_with_a_report_of_what_was_sent(tmp_path: Path, number: signal.Signals) -> None:
    run, server = _silent_run(tmp_path, "--rate", "50", "--duration", "1h")
    with server:
        connection, _ = server.accept()  # the first request is on its way
        run.send_signal(number)
        out, err = run.communicate(timeout=60)
        connection.close()
    found = json.loads(out)
    assert run.returncode == 130
    assert found["stopped"]
    assert found["requests"] == found["statuses"]["unanswered"] == len((tmp_path / "log").read_text().splitlines()) - 1
    assert "requests have no answer: the latencies leave them out" in err
    assert "Traceback" not in err


def test_the_limit_of_open_files_stops_the_run_and_is_named(tmp_path: Path) -> None:
    run, server = _silent_run(tmp_path, "--rate", "2000", "--duration", "1h", files=60)
    with server:
        out, err = run.communicate(timeout=60)
    assert run.returncode == 1
    assert 30 < json.loads(out)["requests"] < 2000
    assert "this process may open 60 files" in err
    assert "Traceback" not in err
