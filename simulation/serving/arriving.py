"""The requests of a service: when they arrive, and how many tokens they have.

A file of arrivals has the columns `arrival_s`, or `arrival_s,prompt_tokens,output_tokens`. The header may be
missing. With a header, further columns do not count; so what `orion trace show --output` writes is such a file. A trace
of requests that `orion trace show` reads is possible, too. The times of a trace count from its first request.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from orion.errors import Unreadable
from orion.simulation.traces.entries import RequestEntry, Skipped
from orion.simulation.traces.numbers import number, whole
from orion.simulation.traces.reading import open_trace
from orion.simulation.traces.text import numbered

from .scenario import Lengths, Spread
from .setting import Service

_Z99 = 2.3263478740408408
""" The 99th percentile of the standard normal distribution. """


@dataclass(frozen=True)
class Requests:
    """A service's requests in the order of their arrival.

    Attributes:
        numbers: the request's number: its position in the file of arrivals, else in the order of arrival; from 0.
        arrivals: nanoseconds.
        prompts: tokens; empty for services without an engine.
        outputs: tokens; empty for services without an engine.
    """

    numbers: np.ndarray
    arrivals: np.ndarray
    prompts: np.ndarray
    outputs: np.ndarray


def requests(service: Service, seconds: float, seed: Sequence[int]) -> Requests:
    """Return the requests that arrive before `seconds`.

    Args:
        service: the service.
        seconds: the end of the arrivals.
        seed: the random numbers of this service.

    Raises:
        Unreadable: a file is wrong, or a request is larger than the engine's cache.
    """
    random = np.random.default_rng(seed)
    none = np.zeros(0, dtype=np.int64)
    prompts = outputs = none
    if service.rates is not None:
        arrivals = service.rates.arrivals(seconds, service.process, random)
        order = np.arange(len(arrivals))
    else:
        rows = read(service.arrivals or Path())
        times = _nanoseconds(np.array([row[0] for row in rows], dtype=float))
        order = np.argsort(times, kind="stable")
        order = order[times[order] < seconds * 1e9]
        arrivals = times[order]
        if service.engine is not None and service.lengths is None:
            tokens = np.array([row[1:] for row in rows], dtype=np.int64).reshape(len(rows), -1)
            if rows and tokens.shape[1] != 2:
                raise Unreadable(f"{service.arrivals} has no tokens: add prompt_tokens,output_tokens, or give lengths")
            prompts, outputs = (tokens[order, column] if rows else none for column in (0, 1))
    if service.engine is not None and service.lengths is not None:
        prompts, outputs = _lengths(service.lengths, len(arrivals), random)
    if service.engine is not None and len(arrivals):
        largest = int((prompts + outputs).max())
        if largest > service.engine.kv_tokens:
            raise Unreadable(
                f"the service {service.name}: a request has {largest} tokens, and kvTokens is "
                f"{service.engine.kv_tokens}: give the KV cache at least {largest} tokens"
            )
    return Requests(order, arrivals, prompts, outputs)


def _nanoseconds(seconds: np.ndarray) -> np.ndarray:
    """Return seconds as nanoseconds; up to nine decimals become whole nanoseconds."""
    exact = seconds * 1e9
    rounded = np.rint(exact)
    return np.where(np.abs(exact - rounded) < 1e-3, rounded, exact)


def read(path: Path) -> list[tuple[float, ...]]:
    """Return the time in seconds, and where the file has them the tokens, of each request, in the file's order.

    Raises:
        Unreadable: the file cannot be read, holds no requests, or has a bad line; with the line and the reason.
    """
    _, first = next(numbered(path), (0, ""))
    cells = [cell.strip().lower() for cell in first.split(",")]
    if not first:
        raise Unreadable(f"{path} is empty: give a file with requests")
    if cells[0] == "arrival_s" or (len(cells) in (1, 3) and _is_number(cells[0]) and not first.startswith("[")):
        return list(_own_rows(path, cells))
    trace = open_trace(path)
    if trace.kind != "requests":
        raise Unreadable(f"{path} holds {trace.kind} (form {trace.name}): give a file of requests")

    def skip(found: Skipped) -> None:
        if found.is_bad:
            raise Unreadable(f"{path}, line {found.line}: {found.reason}: correct the line")

    entries = [entry for entry in trace.entries(skip) if isinstance(entry, RequestEntry)]
    first_s = min((entry.arrival_s for entry in entries), default=0.0)
    return [(entry.arrival_s - first_s, entry.prompt_tokens, entry.output_tokens) for entry in entries]


def _own_rows(path: Path, header: Sequence[str]) -> Iterator[tuple[float, ...]]:
    has_header = header[0] == "arrival_s"
    has_tokens = len(header) >= 3
    columns = 3 if has_tokens else 1
    if has_header and has_tokens and list(header[1:3]) != ["prompt_tokens", "output_tokens"]:
        raise Unreadable(f"{path}, line 1: the columns must be arrival_s[,prompt_tokens,output_tokens]: correct them")
    for line, text in numbered(path):
        if has_header:
            has_header = False
            continue
        cells = text.split(",")
        try:
            if len(cells) < columns:
                raise ValueError(f"the line has {len(cells)} column{'s' * (len(cells) > 1)} in place of {columns}")
            if has_tokens:
                yield number(cells[0], "arrival_s"), whole(cells[1], "prompt_tokens"), whole(cells[2], "output_tokens")
            else:
                yield (number(cells[0], "arrival_s"),)
        except ValueError as error:
            raise Unreadable(f"{path}, line {line}: {error}: correct the line") from error


def _is_number(cell: str) -> bool:
    try:
        number(cell, "")
    except ValueError:
        return False
    return True


def _lengths(lengths: Lengths, count: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return prompts and outputs in tokens."""
    if lengths.file is not None:
        rows = read(Path(lengths.file))
        if not rows or len(rows[0]) != 3:
            raise Unreadable(f"{lengths.file} has no tokens: give a file with prompt_tokens,output_tokens")
        pairs = np.array([row[1:] for row in rows], dtype=np.int64)[random.integers(0, len(rows), count)]
        return pairs[:, 0], pairs[:, 1]
    prompt, output = (_draw(each, count, random) for each in (lengths.prompt, lengths.output))
    return prompt, output


def _draw(wanted: int | Spread | None, count: int, random: np.random.Generator) -> np.ndarray:
    if not isinstance(wanted, Spread):
        return np.full(count, wanted, dtype=np.int64)
    if wanted.uniform is not None:
        return random.integers(wanted.uniform[0], wanted.uniform[1] + 1, count)
    if wanted.lognormal is not None:
        median, p99 = wanted.lognormal
        found = median * np.exp(random.standard_normal(count) * math.log(p99 / median) / _Z99)
    else:
        found = random.exponential(wanted.exponential or 0.0, count)
    return np.maximum(1, np.rint(found)).astype(np.int64)
