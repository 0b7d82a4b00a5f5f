"""An engine with continuous batching: iterations, admission, and when each request gets its tokens.

At the begin of an iteration the engine admits requests that have arrived, first come first served, while
`max_sequences` and the KV cache allow; a request that does not fit blocks the requests behind it. Each sequence past
its prompt decodes one token. What is left of `tokens_per_step` goes to prompts in the order of admission, in chunks. At
the end of the iteration, each prompt that is finished gives the first token, each decoding sequence gives one token,
and a sequence with all its tokens leaves. Without work the clock goes to the next arrival.

Admission `reserve`: a request has room for its prompt and its whole output from the begin. `paged`: a sequence has room
for its tokens so far. If the decoding sequences' next tokens do not fit, the sequence that was admitted last gives its
room back, and goes to the head of the queue. When the engine admits it again, its prompt and its tokens so far are
computed again, in chunks; that gives its next token. Pages have one token.

The loop keeps sums over the decoding sequences and a heap of the iterations in which some sequence gets its last token.
Iterations between two events, in which only decoding happens, are one step: their times are an arithmetic series.
"""

import heapq
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True)
class Engine:
    """What an iteration takes (nanoseconds), and what the engine holds.

    Attributes:
        step_base: of each iteration.
        prefill_token: of each token of a prompt's chunk.
        decode_sequence: of each sequence that decodes.
        context_token: of each token that a decoding sequence has in the cache.
        max_sequences: the most sequences that the engine has admitted.
        tokens_per_step: the most tokens that one iteration computes; decoding comes first.
        kv_tokens: the tokens for which the KV cache has room.
        admission: `reserve` or `paged`.
    """

    step_base: float
    prefill_token: float
    decode_sequence: float
    context_token: float
    max_sequences: int
    tokens_per_step: int
    kv_tokens: int
    admission: str = "reserve"

    def slowed(self, factor: float) -> "Engine":
        """Return the engine with iterations that take `factor` times longer."""
        return replace(
            self,
            step_base=self.step_base * factor,
            prefill_token=self.prefill_token * factor,
            decode_sequence=self.decode_sequence * factor,
            context_token=self.context_token * factor,
        )


@dataclass(frozen=True)
class Requests:
    """Requests in the order of their arrival: nanoseconds and tokens."""

    arrivals: Sequence[float]
    prompts: Sequence[int]
    outputs: Sequence[int]


@dataclass(frozen=True)
class Answered:
    """When each request was admitted and got its first and last token (nanoseconds), in the order of arrival.

    Attributes:
        starts: the begin of the iteration that admitted the request.
        first_tokens: the end of the iteration that gave its first token.
        ends: the end of the iteration that gave its last token.
        busy: the time of all iterations.
        recomputed: how often a sequence gave its room back.
    """

    starts: np.ndarray
    first_tokens: np.ndarray
    ends: np.ndarray
    busy: float
    recomputed: int


def answer(engine: Engine, requests: Requests) -> Answered:
    """Answer all requests.

    Raises:
        ValueError: a request is larger than the KV cache.
    """
    largest = max(map(sum, zip(requests.prompts, requests.outputs, strict=True)), default=0)
    if largest > engine.kv_tokens:
        raise ValueError(f"a request has {largest} tokens, and the KV cache has room for {engine.kv_tokens}")
    loop = _Loop(engine, requests)
    while loop.has_work():
        loop.admit()
        loop.step()
    return Answered(
        np.array(loop.starts), np.array(loop.first_tokens), np.array(loop.ends), loop.busy, loop.recomputed
    )  # fmt: skip


class _Loop:
    """The engine's state between two iterations; requests are their positions."""

    def __init__(self, engine: Engine, requests: Requests) -> None:
        count = len(requests.arrivals)
        self.engine, self.requests = engine, requests
        self.starts, self.first_tokens, self.ends = ([math.nan] * count for _ in range(3))
        self.busy, self.recomputed = 0.0, 0
        self._is_paged = engine.admission == "paged"
        self._now = 0.0
        self._iteration = 0
        self._next = 0  # the first request that was never admitted
        self._returned: deque[int] = deque()  # these gave their room back, and come before all others
        self._given = [0] * count  # tokens that the request had when it was admitted
        self._active = self._decoding = self._context = self._used = 0
        self._prompts: deque[list[int]] = deque()  # request and tokens that are left, in the order of admission
        self._without_prompt: list[int] = []  # these decode from their first iteration on
        self._last = [-1] * count  # the iteration that gives the last token; -1: not decoding
        self._leaving: dict[int, list[int]] = {}  # by iteration
        self._events: list[int] = []  # a heap of the keys of _leaving
        self._admitted: list[int] = []  # paged: in the order of admission, with requests that have left

    def has_work(self) -> bool:
        """Return whether a request is left; if nobody is active, go to the next arrival."""
        if self._active or self._returned:
            return True
        if self._next == len(self.starts):
            return False
        self._now = max(self._now, self.requests.arrivals[self._next])
        return True

    def admit(self) -> None:
        """Admit requests, or take room back where the next tokens do not fit."""
        while self._used > self.engine.kv_tokens:  # only paged
            self._take_back()
        while self._active < self.engine.max_sequences:
            if self._returned:
                request = self._returned[0]
            elif self._next < len(self.starts) and self.requests.arrivals[self._next] <= self._now:
                request = self._next
            else:
                return
            tokens = self.requests.prompts[request] + self._given[request]
            room = tokens if self._is_paged else tokens + self.requests.outputs[request]
            if self._used + room > self.engine.kv_tokens:
                return
            if self._returned:
                self._returned.popleft()
            else:
                self._next += 1
                self.starts[request] = self._now
            self._used += room
            self._active += 1
            if self._is_paged:
                self._admitted.append(request)
            if tokens:
                self._prompts.append([request, tokens])
            else:
                self._decode(request, 0, max(1, self.requests.outputs[request]))
                self._without_prompt.append(request)

    def step(self) -> None:
        """Run one iteration, or several in which the same sequences decode and nobody can join."""
        engine, chunk, finished = self.engine, 0, []
        left = engine.tokens_per_step - self._decoding
        while left > 0 and self._prompts:
            first = self._prompts[0]
            taken = min(left, first[1])
            left -= taken
            chunk += taken
            first[1] -= taken
            if not first[1]:
                finished.append(first[0])
                self._prompts.popleft()
        count = 1 if chunk or self._without_prompt else self._iterations()
        time = self._time(count) + engine.prefill_token * chunk
        self._now += time
        self.busy += time
        self._iteration += count
        self._context += self._decoding * count
        self._grow(self._decoding * count)
        for request in self._without_prompt:
            self.first_tokens[request] = self._now
        self._without_prompt.clear()
        for request in finished:
            self._first_token(request)
        while self._events and self._events[0] < self._iteration:
            for request in self._leaving.pop(heapq.heappop(self._events)):
                self._leave(request)

    def _time(self, count: int) -> float:
        """Return how long the next iterations take without prompts."""
        engine, decoding = self.engine, self._decoding
        tokens = self._context * count + decoding * (count * (count - 1) // 2)
        return (engine.step_base + engine.decode_sequence * decoding) * count + engine.context_token * tokens

    def _iterations(self) -> int:
        """Return for how many iterations nobody can join, nobody leaves and the cache has room."""
        engine, requests = self.engine, self.requests
        most = self._events[0] - self._iteration + 1
        if self._is_paged:
            most = min(most, (engine.kv_tokens - self._used) // self._decoding + 1)
        if most == 1 or self._active == engine.max_sequences or self._returned or self._next == len(self.starts):
            return most
        arrival = requests.arrivals[self._next]
        if arrival <= self._now or self._now + self._time(most - 1) < arrival:
            return most
        low, high = 1, most  # the first count after which the request has arrived
        while low < high:
            middle = (low + high) // 2
            if self._now + self._time(middle) >= arrival:
                high = middle
            else:
                low = middle + 1
        return low

    def _grow(self, tokens: int) -> None:
        """Add tokens to what the sequences use of the cache; with `reserve` they have that room already."""
        if self._is_paged:
            self._used += tokens

    def _first_token(self, request: int) -> None:
        """End a prompt: it gives a token, and its sequence decodes from the next iteration on."""
        if math.isnan(self.first_tokens[request]):
            self.first_tokens[request] = self._now
        tokens = self.requests.prompts[request] + self._given[request]
        left = self.requests.outputs[request] - self._given[request] - 1
        if left > 0:
            self._grow(1)
            self._decode(request, tokens + 1, left)
        else:
            self._end(request, tokens)

    def _decode(self, request: int, tokens: int, left: int) -> None:
        """Let a sequence decode: it has `tokens` tokens in the cache, and gives `left` tokens from now on."""
        self._decoding += 1
        self._context += tokens
        self._last[request] = last = self._iteration + left - 1
        if last not in self._leaving:
            self._leaving[last] = []
            heapq.heappush(self._events, last)
        self._leaving[last].append(request)

    def _leave(self, request: int) -> None:
        """End a sequence that decoded its last token."""
        tokens = self.requests.prompts[request] + max(1, self.requests.outputs[request])
        self._decoding -= 1
        self._context -= tokens
        self._last[request] = -1
        self._end(request, tokens)

    def _end(self, request: int, tokens: int) -> None:
        self._active -= 1
        self._used -= tokens if self._is_paged else self.requests.prompts[request] + self.requests.outputs[request]
        self.ends[request] = self._now

    def _take_back(self) -> None:
        """Send the sequence that was admitted last back to the head of the queue."""
        request = self._admitted.pop()
        while not math.isnan(self.ends[request]):
            request = self._admitted.pop()
        last = self._last[request]
        if last >= 0:
            self._given[request] = self.requests.outputs[request] - (last - self._iteration + 1)
            self._context -= self.requests.prompts[request] + self._given[request]
            self._decoding -= 1
            self._leaving[last].remove(request)
            self._last[request] = -1
        else:
            self._prompts.pop()
        self._used -= self.requests.prompts[request] + self._given[request]
        self._active -= 1
        self._returned.appendleft(request)
        self.recomputed += 1
