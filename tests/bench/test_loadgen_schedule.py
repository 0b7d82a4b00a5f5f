"""When requests of `orion loadgen` are due, and what they carry."""

import json
import math
from array import array
from pathlib import Path

import pytest

from orion.bench.loadgen.requests import Completions, target, template
from orion.bench.loadgen.schedule import Schedule, from_rates, from_trace
from orion.errors import Invalid, Unreadable
from orion.simulation.serving.rates import constant, read

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
CHAT = "http://h/v1/chat/completions"


def _trace(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(AZURE + "".join(f"2023-11-16 18:15:{line}\n" for line in lines))
    return path


def test_uniform_requests_are_due_in_equal_gaps_from_the_begin() -> None:
    due_s = from_rates(constant(1000.0), 2.0, "uniform", 1).due_s
    assert len(due_s) == 2000
    assert due_s[0] == 0
    assert due_s[1999] == pytest.approx(1.999)


def test_equal_seeds_give_equal_schedules_at_the_rate() -> None:
    drawn = [list(from_rates(constant(50.0), 100.0, "poisson", seed).due_s) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert drawn[0] == sorted(drawn[0])
    assert len(drawn[0]) == pytest.approx(5000, rel=0.05)
    assert drawn[0][-1] < 100


def test_the_steps_of_a_rates_file_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "rates.csv"
    path.write_text("seconds,rate\n0,10\n2,0\n3,20\n")
    due_s = from_rates(read(path), 4.0, "uniform", 1).due_s
    assert [sum(low <= each < low + 1 for each in due_s) for low in range(4)] == [10, 10, 0, 20]
    path.write_text("10\n20\n")
    assert len(from_rates(read(path), math.inf, "uniform", 1).due_s) == 20 * 30


def test_a_rate_of_zero_gives_no_request() -> None:
    assert len(from_rates(constant(0.0), 5.0, "poisson", 1).due_s) == 0


@pytest.mark.parametrize(("seconds", "said"), [(math.inf, "give --duration"), (1e9, "at most 50,000,000")])
def test_a_run_without_an_end_or_with_too_many_requests_is_refused(seconds: float, said: str) -> None:
    with pytest.raises(Invalid, match=said):
        from_rates(constant(100.0), seconds, "uniform", 1)


def test_a_trace_gives_times_from_its_first_request_and_tokens(tmp_path: Path) -> None:
    path = _trace(tmp_path, "10.25,30,4", "12.5,40,5", "20.25,50,6")
    found = from_trace(path, 10.0)
    assert list(found.due_s) == [0.0, 2.25]
    assert found.tokens == [(30, 4), (40, 5)]
    assert len(from_trace(path, math.inf).due_s) == 3


def test_a_file_of_arrivals_is_taken_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "arrivals.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens,model\n3.5,7,8,m\n1.5,5,6,m\n")
    assert from_trace(path, math.inf) == Schedule(array("d", [1.5, 3.5]), [(5, 6), (7, 8)])
    path.write_text("0.5\n2\n")
    assert from_trace(path, 2.0) == Schedule(array("d", [0.5]), [])


@pytest.mark.parametrize(
    ("text", "said"),
    [("5 1 18\n", "trace.csv holds jobs"), (f"{AZURE}2023-11-16 18:15:46,x,3\n", "line 2: ContextTokens is 'x'")],
)
def test_what_holds_no_requests_or_a_bad_line_is_refused(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(Unreadable, match=said):
        from_trace(path, math.inf)


def test_a_body_is_posted_and_its_type_is_found(tmp_path: Path) -> None:
    path = tmp_path / "body"
    path.write_text('{"a": 1}')
    found = target("http://h", [], path, None)
    assert (found.method, found.body(0), found.headers) == ("POST", b'{"a": 1}', {"Content-Type": "application/json"})
    path.write_bytes(b"\xff")
    assert target("http://h", [], path, None).headers == {"Content-Type": "application/octet-stream"}
    assert target("http://h", ["content-type: text/x"], path, None).headers == {"content-type": "text/x"}
    found = target("http://h", ["X: a: b"], None, None)
    assert (found.method, found.body(0), found.headers) == ("GET", None, {"X": "a: b"})


@pytest.mark.parametrize("url", ["", "h:80", "ftp://h/", "http://", "http://h:port/", "//h", "localhost:8000/v1"])
def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(Invalid, match="the URL cannot be"):
        target(url, [], None, None)


@pytest.mark.parametrize("line", ["", "no colon", ": no name", "a b: c", "a: b\r\nc: d", "a: \n"])
def test_a_header_that_is_none_is_refused(line: str) -> None:
    with pytest.raises(Invalid, match="--header cannot be"):
        target("http://h", [line], None, None)


def test_a_request_to_a_model_has_the_lengths_of_the_trace() -> None:
    made = Completions(CHAT, {"temperature": 0, "max_tokens": 9}, "m", [(300, 7), (0, 0)], seed=1)
    first, second = json.loads(made.body(0)), json.loads(made.body(1))
    assert len(first["messages"][0]["content"].split()) == 300
    assert (first["max_tokens"], first["temperature"], first["model"]) == (7, 0, "m")
    assert (first["stream"], first["stream_options"]) == (True, {"include_usage": True})
    assert len(second["messages"][0]["content"].split()) == second["max_tokens"] == 1


def test_the_path_decides_between_a_prompt_and_a_chat() -> None:
    for url, key in [
        ("http://h/v1/completions?x=/chat", "prompt"),
        (CHAT, "messages"),
        ("http://h/", "messages"),
    ]:
        assert key in json.loads(Completions(url, None, "", [], seed=1).body(0))


def test_fields_of_a_template_stay_where_no_trace_says_otherwise() -> None:
    fields = {"prompt": "2 + 2 =", "max_tokens": 3, "model": "m", "stream": False, "stream_options": {}}
    found = json.loads(Completions("http://h/completions", fields, "", [], seed=1).body(0))
    assert found == {**fields, "stream": True}


def test_no_two_prompts_begin_alike_and_equal_seeds_give_equal_prompts() -> None:
    made = [Completions(CHAT, None, "", [], seed=seed) for seed in (1, 1)]
    prompts = [[json.loads(each.body(row))["messages"][0]["content"] for row in range(50)] for each in made]
    assert prompts[0] == prompts[1]
    assert len({tuple(prompt.split()[:8]) for prompt in prompts[0]}) == 50


def test_a_template_that_is_no_object_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "body"
    path.write_text("[]")
    with pytest.raises(Unreadable, match="holds no JSON object"):
        template(path)
    with pytest.raises(Unreadable, match="cannot be read: No such file"):
        template(tmp_path / "nothing")


def test_a_schedule_without_a_trace_has_no_tokens() -> None:
    assert Schedule([0.0]).tokens == ()
