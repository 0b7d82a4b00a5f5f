"""The engine's decoder: one pass over a network for the chunks of prompts and the tokens of all sequences together.

Prompts are read into one of two slots of their own, because an iteration holds pieces of two prompts at most. Sequences
that decode occupy the first slots of the other cache without holes: a finished prompt is copied to the next of these
slots, and the last slot is copied to a slot that a sequence leaves. So one CUDA graph for each number of sequences, and
each padded number of prompt tokens, serves all iterations. Attention reads whole slots under a mask: its time does not
depend on how many tokens of a slot are used.
"""

# mypy: disable-error-code="import-not-found, no-untyped-call, misc"
from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

from orion.bench.services.engine import Chunk
from orion.bench.services.scenario import Engine
from orion.bench.workloads.networks.transformer import Decoder
from orion.bench.workloads.shapes import GPT

TINY = (2, 64, 4)
PROMPT_SLOTS = 2
ALIGNMENT = 16
WARM_UP = 2


class SlotDecoder:
    """Executes iterations of the engine; see `engine.Executor`."""

    def __init__(self, settings: Engine, prompts: Sequence[int], device: str) -> None:
        """Build the network, the caches and the graphs.

        Args:
            settings: The engine's settings.
            prompts: Tokens of each request's prompt, by number of the request; `restart` replaces them.
            device: `cuda` or `cpu`.
        """
        torch.manual_seed(0)
        torch.set_num_threads(1)
        torch.backends.cuda.enable_cudnn_sdp(False)  # it compiles a plan for each shape
        self._settings, self._device = settings, device
        layers, width, self._heads = GPT if device == "cuda" else TINY
        self._width = width
        self._capacity = -(-(settings.prompt[1] + settings.output[1]) // ALIGNMENT) * ALIGNMENT
        self.gpu = torch.cuda.get_device_name() if device == "cuda" else "CPU"
        self._stream = torch.cuda.Stream() if device == "cuda" else None
        most, tokens = settings.max_sequences, settings.tokens_per_step
        with torch.inference_mode(), torch.device(device), torch.cuda.stream(self._stream):
            network = Decoder(layers, width, self._heads, length=self._capacity)
            self._network = network.to(dtype=torch.bfloat16).eval()
            rows = (PROMPT_SLOTS * self._capacity + 1, 2 * width)  # the last row takes the padding's keys and values
            self._prompt_slots = torch.randn(layers, *rows, dtype=torch.bfloat16)
            self._slots = torch.randn(layers, most, self._capacity, 2 * width, dtype=torch.bfloat16)
            self._words, self._prompt_slot, self._place, self._row = (
                torch.zeros(tokens, dtype=torch.long) for _ in range(4)
            )
            self._last = torch.zeros(1, dtype=torch.long)
            self._token, self._position = (torch.zeros(most, dtype=torch.long) for _ in range(2))
            self._answer = torch.zeros(most + 1, dtype=torch.long)
            self._packed = torch.zeros(4 * tokens + 1 + 2 * most, dtype=torch.long)
        self._sent = torch.zeros(len(self._packed), dtype=torch.long, device="cpu", pin_memory=device == "cuda")
        self._graphs: dict[tuple[int, int], Any] = {}
        self.restart(prompts)
        if device == "cuda":
            self._capture_all()

    def restart(self, prompts: Sequence[int]) -> None:
        """Forget all sequences; take the lengths of the next requests' prompts."""
        self._prompts = prompts
        self._order: list[int] = []  # requests that decode, by slot
        self._next: dict[int, int] = {}  # the token to decode next, by request
        self._at: dict[int, int] = {}  # its position
        self._prompt_slot_of: dict[int, int] = {}

    def throughout(self) -> Any:
        """Return the context in which iterations run."""
        return torch.cuda.stream(self._stream)

    def place(self, sequences: int, position: int) -> None:
        """Let this many sequences decode from a position, without their prompts; for measurements of `step`."""
        self.restart([position] * sequences)
        for number in range(sequences):
            self._order.append(number)
            self._next[number], self._at[number] = 1, position

    def step(self, chunks: Sequence[Chunk], decoding: Sequence[int]) -> None:
        """Process one iteration and wait for it."""
        tokens, count = sum(chunk.count for chunk in chunks), len(decoding)
        padded = -(-tokens // self._settings.chunk_multiple) * self._settings.chunk_multiple
        finished = self._pack(chunks, padded)
        with torch.inference_mode():
            self._packed.copy_(self._sent, non_blocking=True)
            graph = self._graphs.get((padded, count))
            if graph is None:
                self._forward(padded, count)
            else:
                graph.replay()
            answer = self._answer[: count + 1].tolist()
            for slot in range(count):
                request = self._order[slot]
                self._next[request] = answer[slot + 1]
                self._at[request] += 1
            if finished is not None:
                self._join(finished, answer[0])

    def leave(self, request: int) -> None:
        """Give the slot of a sequence to the last one."""
        if request not in self._next:
            return
        slot, last = self._order.index(request), len(self._order) - 1
        if slot != last:
            with torch.inference_mode():
                self._slots[:, slot].copy_(self._slots[:, last])
            self._order[slot] = self._order[last]
        self._order.pop()
        del self._next[request], self._at[request]

    def _join(self, request: int, token: int) -> None:
        prompt_slot, slot = self._prompt_slot_of.pop(request), len(self._order)
        begin = prompt_slot * self._capacity
        self._slots[:, slot].copy_(self._prompt_slots[:, begin : begin + self._capacity])
        self._order.append(request)
        self._next[request], self._at[request] = token, self._prompts[request]

    def _pack(self, chunks: Sequence[Chunk], padded: int) -> int | None:
        """Write the iteration's numbers into the pinned buffer; return the request whose prompt ends, if one does."""
        tokens = self._settings.tokens_per_step
        words, prompt_slots, places, rows = (self._sent[tokens * each : tokens * (each + 1)] for each in range(4))
        finished, at, last = None, 0, 0
        for chunk in chunks:
            prompt_slot = self._prompt_slot_of.get(chunk.request)
            if prompt_slot is None:
                prompt_slot = self._prompt_slot_of[chunk.request] = 1 - next(iter(self._prompt_slot_of.values()), 1)
            piece = slice(at, at + chunk.count)
            numbers = torch.arange(chunk.begin, chunk.begin + chunk.count)
            words[piece], prompt_slots[piece], places[piece] = 1 + numbers, prompt_slot, numbers
            rows[piece] = numbers + prompt_slot * self._capacity
            at += chunk.count
            if chunk.last:
                finished, last = chunk.request, at - 1
        rows[at:padded] = PROMPT_SLOTS * self._capacity
        self._sent[4 * tokens] = last
        base, most = 4 * tokens + 1, self._settings.max_sequences
        count = len(self._order)
        if count:
            self._sent[base : base + count] = torch.tensor([self._next[each] for each in self._order])
            self._sent[base + most : base + most + count] = torch.tensor([self._at[each] for each in self._order])
        return finished

    def _capture_all(self) -> None:
        multiple, most = self._settings.chunk_multiple, self._settings.max_sequences
        pool = torch.cuda.graph_pool_handle()
        for padded in reversed(range(0, self._settings.tokens_per_step + 1, multiple)):
            for count in reversed(range(most + 1)):
                if padded + count == 0:
                    continue
                with torch.inference_mode(), torch.cuda.stream(self._stream):
                    for _ in range(WARM_UP):
                        self._forward(padded, count)
                    torch.cuda.synchronize()
                    graph = torch.cuda.CUDAGraph()
                    with torch.cuda.graph(graph, pool=pool, stream=self._stream):
                        self._forward(padded, count)
                self._graphs[padded, count] = graph

    def _forward(self, padded: int, count: int) -> None:
        """One pass for `padded` prompt tokens and `count` sequences; writes the next tokens to `_answer`."""
        network, capacity, heads = self._network, self._capacity, self._heads
        self._unpack(padded, count)
        prompt_slot, place = self._prompt_slot[:padded], self._place[:padded]
        seen = torch.arange(capacity, device=self._device)
        rows = torch.cat([self._words[:padded], self._token[:count]])
        word = network.words(rows) + network.positions(torch.cat([place, self._position[:count]]))
        chunk_mask = slot_mask = slot_rows = None
        if padded:
            hidden = (prompt_slot[None] != torch.arange(PROMPT_SLOTS, device=self._device)[:, None])[:, :, None] & (
                seen[None, None] > 0
            )
            hidden = hidden | (seen[None, None] > place[None, :, None])
            chunk_mask = torch.zeros(hidden.shape, dtype=torch.bfloat16, device=self._device)
            chunk_mask = chunk_mask.masked_fill(hidden, float("-inf"))[:, None].expand(-1, heads, -1, -1)
        if count:
            late = seen[None] > self._position[:count, None]
            slot_mask = torch.zeros(late.shape, dtype=torch.bfloat16, device=self._device)
            slot_mask = slot_mask.masked_fill(late, float("-inf"))[:, None, None].expand(-1, heads, -1, -1)
            slot_rows = torch.arange(count, device=self._device) * capacity + self._position[:count]
        for number, layer in enumerate(network.layers):
            mixed = layer.attention.queries_keys_values(layer.before_attention(word))
            parts = []
            if padded:
                parts.append(self._attend_chunk(number, mixed[:padded], prompt_slot, chunk_mask))
            if count:
                parts.append(self._attend_slots(number, mixed[padded:], slot_rows, slot_mask))
            both = parts[0] if len(parts) == 1 else torch.cat(parts)
            word = word + layer.attention.merge(both)
            word = word + layer.feed_forward(layer.before_forward(word))
        chosen = word[padded:]
        first = word.index_select(0, self._last) if padded else torch.zeros_like(word[:1])
        scores = network.predict(network.normalise(torch.cat([first, chosen])))
        self._answer[: count + 1].copy_(scores.argmax(-1))

    def _unpack(self, padded: int, count: int) -> None:
        tokens, most, packed = self._settings.tokens_per_step, self._settings.max_sequences, self._packed
        for number, target in enumerate((self._words, self._prompt_slot, self._place, self._row)):
            target[:padded].copy_(packed[tokens * number : tokens * number + padded])
        self._last.copy_(packed[4 * tokens : 4 * tokens + 1])
        base = 4 * tokens + 1
        self._token[:count].copy_(packed[base : base + count])
        self._position[:count].copy_(packed[base + most : base + most + count])

    def _attend_chunk(self, number: int, mixed: Any, prompt_slot: Any, mask: Any) -> Any:
        width, heads, count = self._width, self._heads, len(mixed)
        cache = self._prompt_slots[number]
        cache.index_copy_(0, self._row[:count], mixed[:, width:])
        both = cache[:-1].view(PROMPT_SLOTS, self._capacity, 2, heads, -1).permute(2, 0, 3, 1, 4)
        queries = mixed[:, :width].view(1, count, heads, -1).transpose(1, 2).expand(PROMPT_SLOTS, -1, -1, -1)
        seen = scaled_dot_product_attention(queries, both[0], both[1], attn_mask=mask)
        by_slot = seen.transpose(1, 2).reshape(PROMPT_SLOTS, count, width)
        return torch.where(prompt_slot[:, None] == 0, by_slot[0], by_slot[1])

    def _attend_slots(self, number: int, mixed: Any, rows: Any, mask: Any) -> Any:
        width, heads, count = self._width, self._heads, len(mixed)
        cache = self._slots[number]
        cache.view(-1, 2 * width).index_copy_(0, rows, mixed[:, width:])
        both = cache[:count].view(count, self._capacity, 2, heads, -1).permute(2, 0, 3, 1, 4)
        queries = mixed[:, :width].view(count, heads, 1, -1)
        seen = scaled_dot_product_attention(queries, both[0], both[1], attn_mask=mask)
        return seen.reshape(count, width)
