"""The encoder (BERT) and the decoder (GPT), built from the same layer.

A decoder's key-value caches have a fixed size, and the position of a token is a tensor on the GPU. So a step of
generation does not depend on values on the CPU, and one CUDA graph serves all steps. A step uses few kernels, nine per
layer: one write of keys and values together, one attention over the cache with a mask that all layers share, and
matrix products that add their result to the residual in place.
"""

# mypy: disable-error-code="import-not-found, misc, no-untyped-call"
import math

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention


class KeyValueCache(nn.Module):
    """Keys and values of one layer, for `length` tokens; the initial content is random."""

    both: Tensor
    """(batch, length, 2 * width): keys, then values."""

    def __init__(self, batch: int, length: int, width: int) -> None:
        super().__init__()
        self.register_buffer("both", torch.randn(batch, length, 2 * width))

    def fill(self, both: Tensor) -> None:
        """Write the first tokens' keys and values, (batch, n, 2 * width)."""
        self.both[:, : both.shape[1]] = both

    def put(self, both: Tensor, position: Tensor) -> None:
        """Write one token's keys and values, (batch, 1, 2 * width), at `position`, (1,)."""
        self.both.index_copy_(1, position, both)

    def by_head(self, heads: int) -> Tensor:
        """Return keys and values as (2, batch, heads, length, width of a head), without a copy."""
        batch, length, _ = self.both.shape
        return self.both.view(batch, length, 2, heads, -1).permute(2, 0, 3, 1, 4)


class SelfAttention(nn.Module):
    """Each token attends to all tokens; if causal, to itself and earlier tokens."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.merge = nn.Linear(width, width, bias=not causal)

    def forward(self, words: Tensor, cache: KeyValueCache | None = None) -> Tensor:
        """Transform (batch, n, width) to the same shape; keys and values also go to the cache, if one is given."""
        batch, length, width = words.shape
        mixed = self.queries_keys_values(words)
        if cache is not None:
            cache.fill(mixed[:, :, width:])
        queries, keys, values = mixed.view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = scaled_dot_product_attention(queries, keys, values, is_causal=self.causal)
        merged: Tensor = self.merge(seen.transpose(1, 2).reshape(batch, length, width))
        return merged

    def attend_one(self, word: Tensor, cache: KeyValueCache, position: Tensor, visible: Tensor) -> Tensor:
        """Return the attention of one token, (batch, width), over the cache, before the output projection.

        Args:
            word: The token's vector, (batch, width).
            cache: Cache of this layer; the token's keys and values are written to it.
            position: (1,), position of the token.
            visible: (1, 1, 1, length of the cache), added to the scores: 0 or minus infinity.
        """
        batch, width = word.shape
        mixed = self.queries_keys_values(word)
        cache.put(mixed[:, None, width:], position)
        keys, values = cache.by_head(self.heads)
        query = mixed[:, :width].view(batch, self.heads, 1, -1)
        seen = scaled_dot_product_attention(query, keys, values, attn_mask=visible)
        return seen.reshape(batch, width)


class Layer(nn.Module):
    """Self-attention and a feed-forward part, each with a layer norm before it and a residual connection.

    In a decoder, the last product of each part has no bias, so `step` can add the product to the residual in place.
    """

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.before_attention, self.before_forward = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = SelfAttention(width, heads, causal)
        narrow = nn.Linear(4 * width, width, bias=not causal)
        self.feed_forward = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), narrow)

    def forward(self, words: Tensor, cache: KeyValueCache | None = None) -> Tensor:
        """Transform (batch, n, width) to the same shape; see `SelfAttention`."""
        words = words + self.attention(self.before_attention(words), cache)
        answer: Tensor = words + self.feed_forward(self.before_forward(words))
        return answer

    def step(self, word: Tensor, cache: KeyValueCache, position: Tensor, visible: Tensor) -> None:
        """Transform one token, (batch, width), in place; see `SelfAttention.attend_one`."""
        seen = self.attention.attend_one(self.before_attention(word), cache, position, visible)
        word.addmm_(seen, self.attention.merge.weight.t())
        wide, activate, narrow = self.feed_forward
        word.addmm_(activate(wide(self.before_forward(word))), narrow.weight.t())


class Encoder(nn.Module):
    """A BERT-like encoder: token ids to vectors."""

    VOCABULARY = 30522

    def __init__(self, layers: int, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(self.VOCABULARY, width), nn.Embedding(length, width)
        self.layers = nn.Sequential(*(Layer(width, heads, causal=False) for _ in range(layers)), nn.LayerNorm(width))

    def forward(self, tokens: Tensor) -> Tensor:
        """Encode (batch, length) as (batch, length, width)."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        answer: Tensor = self.layers(self.words(tokens) + self.positions(positions))
        return answer


class SequenceClassifier(nn.Module):
    """BERT as a classifier: one class for a whole sequence."""

    CLASSES = 2

    def __init__(self, layers: int, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.encoder = Encoder(layers, width, heads, length)
        self.classify = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, self.CLASSES))

    def forward(self, tokens: Tensor) -> Tensor:
        """Classify (batch, length): scores (batch, CLASSES)."""
        scores: Tensor = self.classify(self.encoder(tokens)[:, 0])
        return scores


class MaskedLanguageModel(nn.Module):
    """BERT as it is trained: it predicts the words at some positions."""

    VOCABULARY = Encoder.VOCABULARY

    def __init__(self, layers: int, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.encoder = Encoder(layers, width, heads, length)
        self.predict = nn.Linear(width, self.VOCABULARY)

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Predict words.

        Args:
            tokens: (batch, length) token ids.
            positions: (batch, n) positions to predict.

        Returns:
            Scores, (batch, n, VOCABULARY).
        """
        seen = self.encoder(tokens)
        chosen = seen.gather(1, positions[:, :, None].expand(-1, -1, seen.shape[2]))
        scores: Tensor = self.predict(chosen)
        return scores


class Decoder(nn.Module):
    """A GPT-like decoder."""

    VOCABULARY = 50257

    def __init__(self, layers: int, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.width = width
        self.words, self.positions = nn.Embedding(self.VOCABULARY, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList(Layer(width, heads, causal=True) for _ in range(layers))
        self.normalise = nn.LayerNorm(width)
        self.predict = nn.Linear(width, self.VOCABULARY, bias=False)

    def caches(self, batch: int, length: int) -> nn.ModuleList:
        """Return a cache for each layer; each holds `length` tokens of `batch` sequences."""
        return nn.ModuleList(KeyValueCache(batch, length, self.width) for _ in self.layers)

    def forward(self, tokens: Tensor) -> Tensor:
        """Predict each next token, for training: (batch, n) to scores (batch, n, VOCABULARY)."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        words = self.words(tokens) + self.positions(positions)
        for layer in self.layers:
            words = layer(words)
        scores: Tensor = self.predict(self.normalise(words))
        return scores

    def prefill(self, tokens: Tensor, caches: nn.ModuleList) -> Tensor:
        """Read a prompt, (batch, n), into the caches; return the next token's scores, (batch, VOCABULARY)."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        words = self.words(tokens) + self.positions(positions)
        for layer, cache in zip(self.layers, caches, strict=True):
            words = layer(words, cache)
        scores: Tensor = self.predict(self.normalise(words[:, -1]))
        return scores

    def decode(self, token: Tensor, position: Tensor, visible: Tensor, caches: nn.ModuleList) -> Tensor:
        """Read one token, (batch,), at `position`, (1,); return the next token's scores, (batch, VOCABULARY)."""
        word = self.words(token) + self.positions(position)
        for layer, cache in zip(self.layers, caches, strict=True):
            layer.step(word, cache, position, visible)
        scores: Tensor = self.predict(self.normalise(word))
        return scores


class Prefill(nn.Module):
    """Reads a prompt and returns the first token after it."""

    def __init__(self, decoder: Decoder, batch: int, length: int) -> None:
        super().__init__()
        self.decoder, self.caches = decoder, decoder.caches(batch, length)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the token after the prompt (batch, length), as (batch, 1)."""
        sampled: Tensor = self.decoder.prefill(tokens, self.caches).argmax(-1, keepdim=True)
        return sampled


class OneToken(nn.Module):
    """One step of generation. Its state is in buffers, so a step takes no argument."""

    token: Tensor
    position: Tensor
    visible: Tensor

    def __init__(self, decoder: Decoder, batch: int, prompt: int, capacity: int) -> None:
        """Prepare for generation.

        Args:
            decoder: The network.
            batch: Sequences generated together.
            prompt: Tokens in the caches before the first generated one.
            capacity: Tokens that fit into the caches, including the prompt; call `rewind` before there are more.
        """
        super().__init__()
        self.decoder, self.prompt = decoder, prompt
        self.caches = decoder.caches(batch, capacity)
        self.register_buffer("token", torch.zeros(batch, 1, dtype=torch.long))
        self.register_buffer("position", torch.full((1,), prompt, dtype=torch.long))
        self.register_buffer("visible", torch.zeros(1, 1, 1, capacity))
        self.rewind()

    def rewind(self) -> None:
        """Restart directly after the prompt."""
        self.position.fill_(self.prompt)
        self.visible[..., self.prompt :].fill_(-math.inf)

    def forward(self) -> Tensor:
        """Generate one token per sequence, (batch, 1); returns the same tensor each time."""
        self.visible.index_fill_(3, self.position, 0.0)
        scores = self.decoder.decode(self.token[:, 0], self.position, self.visible, self.caches)
        self.token.copy_(scores.argmax(-1, keepdim=True))
        self.position.add_(1)
        return self.token
