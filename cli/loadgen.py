"""`orion loadgen`: sends requests to a server on a schedule; orion.bench.loadgen does the work."""

import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orion.cli import extras
from orion.errors import Exhausted, Invalid, NotFound, Unavailable

if TYPE_CHECKING:
    from orion.bench.loadgen.recording import Recording
    from orion.bench.loadgen.requests import Target
    from orion.bench.loadgen.schedule import Schedule
    from orion.bench.loadgen.sending import Sender

_ARRIVALS = ("poisson", "uniform")
_STOPPED = 130


def loadgen(
    url: Annotated[str, typer.Argument(metavar="URL", help="Where to send requests, such as http://127.0.0.1:8000/.")],
    rate: Annotated[float | None, typer.Option(metavar="R", help="Requests a second.")] = None,
    rates: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Rates over time: CSV seconds,rate; or one rate a line, each for 20 s."),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Requests of a trace, or a CSV arrival_s,prompt_tokens,output_tokens."),
    ] = None,
    duration: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="How long to send.", show_default="60s with --rate, else the file's end"),
    ] = None,
    arrivals: Annotated[
        str | None,
        typer.Option(
            metavar="poisson|uniform", help="Random or equal gaps, with --rate and --rates.", show_default="poisson"
        ),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="S", min=0, help="Seed of random arrivals and prompts.")] = 0,
    objective: Annotated[
        str | None, typer.Option(metavar="TIME", help="Count requests that take longer than TIME or fail.")
    ] = None,
    timeout: Annotated[str, typer.Option(metavar="TIME", help="How long to wait for an answer.")] = "30s",
    stream: Annotated[
        bool, typer.Option("--stream", help="Ask a language model (OpenAI's interface), and time its tokens.")
    ] = False,
    model: Annotated[str, typer.Option(metavar="NAME", help="With --stream: the model to ask for.")] = "",
    body: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="POST this content; with --stream: JSON fields of each request."),
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option(metavar="'NAME: VALUE'", help="A header of each request; may be repeated.")
    ] = None,
    log: Annotated[Path | None, typer.Option(metavar="FILE.csv", help="Write the times of each request.")] = None,
    hdr: Annotated[Path | None, typer.Option(metavar="FILE.hlog", help="Write an HdrHistogram log.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Send requests to a server on a fixed schedule, and measure their latencies.

    A request is sent when it is due, even if earlier ones wait for answers.
    A latency counts from the time at which the request was due. So a server
    that stands still for a second shows latencies of up to a second.

    [bold]orion loadgen http://127.0.0.1:8000/ --rate 200 --duration 30s --objective 100ms[/bold]

    [bold]orion loadgen http://127.0.0.1:8000/v1/completions --stream --trace BurstGPT_1.csv --duration 10m[/bold]

    Errors are timeouts, broken connections, and statuses other than 200 to 299.
    Percentiles count successful answers and timeouts. Ctrl-C ends the run, and
    reports what was sent.
    """
    if hdr is not None:
        extras.require("hdrh", "--hdr needs it")
    _check_outputs([log, hdr], [rates, trace, body])
    limit_s = None if objective is None else _seconds("--objective", objective)
    timeout_s = _seconds("--timeout", timeout)
    schedule = _schedule(rate, rates, trace, duration, arrivals, seed)
    target = _target(url, header or [], body, stream, model, schedule, seed)
    recording, sender = _send(schedule, target, timeout_s)
    return _finish(recording, sender, target, limit_s, log, hdr, as_json)


def _check_outputs(outputs: list[Path | None], inputs: list[Path | None]) -> None:
    """Refuse files that cannot be written, before hours of sending."""
    taken = {path.resolve() for path in inputs if path is not None}
    for path in outputs:
        if path is None:
            continue
        if not path.resolve().parent.is_dir():
            raise NotFound(f"{path} cannot be written: there is no folder {path.parent}; make it first")
        if path.is_dir():
            raise Invalid(f"{path} cannot be written: it is a folder; give the name of a file")
        if path.resolve() in taken:
            raise Invalid(f"{path} is given twice: give another file for --log or --hdr")
        taken.add(path.resolve())


def _seconds(option: str, text: str) -> float:
    from orion.crds.durations import Duration

    try:
        found = Duration(text).nanoseconds / 1e9
    except ValueError as error:
        raise Invalid(f"{option} {error}") from error
    if not found:
        raise Invalid(f"{option} must be more than 0, not {text}")
    return found


def _schedule(
    rate: float | None, rates: Path | None, trace: Path | None, duration: str | None, arrivals: str | None, seed: int
) -> "Schedule":
    from orion.bench.loadgen import schedule
    from orion.simulation.serving import rates as rate_files

    if sum(each is not None for each in (rate, rates, trace)) != 1:
        raise Invalid("give one of --rate R, --rates FILE and --trace FILE: it says when requests are sent")
    seconds = math.inf if duration is None else _seconds("--duration", duration)
    if trace is not None:
        if arrivals is not None:
            raise Invalid("--arrivals cannot be given with --trace: the trace has the times; leave out --arrivals")
        return schedule.from_trace(trace, seconds)
    if arrivals not in (None, *_ARRIVALS):
        raise Invalid(f"--arrivals cannot be {arrivals!r}: choose one of {', '.join(_ARRIVALS)}")
    if rates is not None:
        return schedule.from_rates(rate_files.read(rates), seconds, arrivals or _ARRIVALS[0], seed)
    if rate is None or not 0 <= rate < math.inf:
        raise Invalid(f"--rate cannot be {rate}: give requests a second, 0 or more")
    found = rate_files.constant(rate)
    return schedule.from_rates(found, 60.0 if duration is None else seconds, arrivals or _ARRIVALS[0], seed)


def _target(
    url: str, headers: list[str], body: Path | None, stream: bool, model: str, schedule: "Schedule", seed: int
) -> "Target":
    from orion.bench.loadgen import requests

    if not stream:
        if model:
            raise Invalid("--model needs --stream: other requests are sent as --body holds them")
        return requests.target(url, headers, body, None)
    fields = None if body is None else requests.template(body)
    completions = requests.Completions(url, fields, model, schedule.tokens, seed)
    return requests.target(url, headers, None, completions)


def _send(schedule: "Schedule", target: "Target", timeout_s: float) -> "tuple[Recording, Sender]":
    import asyncio

    from orion.bench.loadgen.recording import Recording
    from orion.bench.loadgen.sending import Sender, raise_file_limit

    raise_file_limit()
    recording = Recording()
    sender = Sender(target, recording, timeout_s)
    last_s = schedule.due_s[-1] if schedule.due_s else 0.0
    is_shown = sys.stderr.isatty()

    def show(passed_s: float) -> None:
        left = f"{max(0.0, last_s - passed_s):,.0f} s left" if passed_s < last_s else "waiting for answers"
        print(f"\r{left}: {len(recording):,} sent, {sender.open:,} open \x1b[K", end="", file=sys.stderr, flush=True)

    asyncio.run(sender.run(schedule, show if is_shown else None))
    if is_shown:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    return recording, sender


def _finish(
    recording: "Recording", sender: "Sender", target: "Target", limit_s: float | None,
    log: Path | None, hdr: Path | None, as_json: bool,
) -> int:  # fmt: skip
    from orion.bench.loadgen import report
    from orion.simulation.whole_files import write

    found = report.figures(recording, limit_s, is_stream=target.is_stream, is_stopped=sender.is_stopped)
    if as_json:
        print(json.dumps({**found, "url": target.url}), flush=True)
    else:
        _print(target.url, found)
    for sentence in report.sentences(recording, found, sender.reasons):
        print(f"orion: {sentence}", file=sys.stderr)
    if log is not None:
        write(log, recording.csv(has_tokens=target.is_stream))
    if hdr is not None:
        from orion.bench.loadgen import histogram

        write(hdr, histogram.lines(recording, sender.began_s, is_stream=target.is_stream))
    if sender.is_out_of_files:
        raise Exhausted(_out_of_files(len(recording)))
    if sender.is_stopped:
        return _STOPPED
    if recording and not any(isinstance(status, int) for status in recording.status):
        raise Unavailable(f"{target.url} answered none of {len(recording):,} requests: check the URL and the server")
    return 0


def _out_of_files(requests: int) -> str:
    from orion.bench.loadgen.sending import raise_file_limit

    return (
        f"the run was stopped after {requests:,} requests: each request that waits needs a connection, and this "
        f"process may open {raise_file_limit():,} files; give a lower rate or a shorter --timeout, or raise the limit "
        "(ulimit -n)"
    )


def _print(url: str, found: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(highlight=False, soft_wrap=True)
    counts = ", ".join(f"{count:,} x {status}" for status, count in found["statuses"].items())
    console.print(f"[bold]{escape(url)}[/bold]: {found['requests']:,} requests" + (f" ({counts})" if counts else ""))
    if found["missed"] is not None:
        share = f" ({found['missed'] / found['requests']:.2%})" if found["requests"] else ""
        console.print(f"missed the objective of {found['objective_ms']:g} ms: {found['missed']:,}{share}")
    table = Table("", box=None, pad_edge=False)
    rows = {"latency (ms)": "latency_ms", "to the first token (ms)": "ttft_ms", "per token (ms)": "tpot_ms"}
    for title in ("p50", "p95", "p99", "max"):
        table.add_column(title, justify="right")
    for title, name in rows.items():
        if found[name] is not None and found[name]["max"] is not None:
            table.add_row(title, *(f"{value:,.2f}" for value in found[name].values()))
    if table.row_count:
        console.print(table)
    if found["behind_ms"] is not None:
        late = f"{found['behind_ms']:.2f} ms (99 % of the requests), {found['behind_max_ms']:.2f} ms (all)"
        console.print(f"sent late by at most {late}")
