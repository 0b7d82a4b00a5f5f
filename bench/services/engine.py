"""The engine's rule: continuous batching with prompts in chunks, and room reserved for a whole request.

At the begin of an iteration, requests that have arrived are admitted in order while the number of sequences and the
tokens of key-value memory allow; the head blocks. Sequences past their prompt decode one token each. What is left of
the iteration's tokens goes to prompts in the order of admission. At its end, a finished prompt has its first token.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True)
class Request:
    """One request; arrival in seconds from the run's begin."""

    arrival: float
    prompt: int
    output: int


@dataclass(frozen=True)
class Limits:
    """The engine's settings."""

    max_sequences: int
    tokens_per_step: int
    kv_tokens: int


@dataclass(frozen=True)
class Chunk:
    """A piece of a prompt: `count` tokens from position `begin`; `last` if the prompt ends with it."""

    request: int
    begin: int
    count: int
    last: bool


class Executor(Protocol):
    """Executes iterations; it keeps the caches of the sequences."""

    def step(self, chunks: Sequence[Chunk], decoding: Sequence[int]) -> None:
        """Process these tokens and wait for the result; a sequence whose prompt ends joins those that decode."""

    def leave(self, request: int) -> None:
        """Give up the cache of a sequence that has all its tokens."""


@dataclass
class Log:
    """What happened, times in seconds from the begin: by request, and by iteration."""

    admitted: dict[int, float] = field(default_factory=dict)
    first: dict[int, float] = field(default_factory=dict)
    end: dict[int, float] = field(default_factory=dict)
    iterations: list[tuple[float, float, int, int, int]] = field(default_factory=list)
    """Start, end, tokens of prompts, sequences that decode, their tokens in the cache."""


@dataclass
class _Sequence:
    number: int
    request: Request
    read: int = 0
    """Tokens of the prompt in the cache."""
    given: int = 0

    @property
    def decodes(self) -> bool:
        return self.read == self.request.prompt


def run(
    requests: Sequence[Request],
    limits: Limits,
    executor: Executor,
    clock: Callable[[], float],
    wait_until: Callable[[float], None],
    until: float,
) -> Log:
    """Serve all requests, or stop at the first iteration that would begin after `until`.

    Args:
        requests: In the order of arrival.
        limits: The engine's settings.
        executor: Executes iterations.
        clock: Returns seconds since the run's begin.
        wait_until: Waits until the clock shows an instant.
        until: No iteration begins later.
    """
    log, running, head = Log(), list[_Sequence](), 0
    while running or head < len(requests):
        now = clock()
        if not running and requests[head].arrival > now:
            if requests[head].arrival >= until:
                break
            wait_until(requests[head].arrival)
            continue
        if now >= until:
            break
        while head < len(requests) and _admissible(requests[head], now, running, limits):
            running.append(_Sequence(head, requests[head]))
            log.admitted[head] = now
            head += 1
        running = _iterate(running, limits, executor, clock, now, log)
    return log


def _admissible(request: Request, now: float, running: Sequence[_Sequence], limits: Limits) -> bool:
    reserved = sum(each.request.prompt + each.request.output for each in running)
    return (
        request.arrival <= now
        and len(running) < limits.max_sequences
        and reserved + request.prompt + request.output <= limits.kv_tokens
    )


def _iterate(
    running: list[_Sequence],
    limits: Limits,
    executor: Executor,
    clock: Callable[[], float],
    now: float,
    log: Log,
) -> list[_Sequence]:
    decoding = [each for each in running if each.decodes]
    context = sum(each.request.prompt + each.given for each in decoding)
    left, chunks, reading = limits.tokens_per_step - len(decoding), list[Chunk](), list[_Sequence]()
    for each in running:
        count = min(left, each.request.prompt - each.read)
        if count > 0:
            chunks.append(Chunk(each.number, each.read, count, each.read + count == each.request.prompt))
            reading.append(each)
            left -= count
    executor.step(chunks, [each.number for each in decoding])
    end = clock()
    log.iterations.append((now, end, sum(chunk.count for chunk in chunks), len(decoding), context))
    for each, chunk in zip(reading, chunks, strict=True):
        each.read += chunk.count
        if chunk.last:
            each.given = 1
            log.first[each.number] = end
    for each in decoding:
        each.given += 1
    for each in running:
        if each.given == each.request.output:
            log.end[each.number] = end
            executor.leave(each.number)
    return [each for each in running if each.given < each.request.output]
