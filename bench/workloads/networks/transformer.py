"""The encoder (BERT) and the decoder (GPT), from one layer.

A decoder's keys and values live in caches of fixed size, and where a token stands is a tensor on the GPU: what one
step of generation does never depends on a number that the CPU knows, so a CUDA graph of one step serves all of them.
That step is as lean as torch's own kernels allow, nine a layer: one write of keys and values together, one attention
over the cache with a mask that all layers share, and products that add to the residual themselves.
"""

# mypy: disable-error-code="import-not-found, misc, no-untyped-call"
import math

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention


class KeyValueCache(nn.Module):
    """Keys and values of one layer side by side, for as many tokens as there is room; starts with random ones."""

    both: Tensor
    """(batch, length, 2 * width): keys, then values."""

    def __init__(self, batch: int, length: int, width: int) -> None:
        super().__init__()
        self.register_buffer("both", torch.randn(batch, length, 2 * width))

    def fill(self, both: Tensor) -> None:
        """Write the first tokens' keys and values, (batch, n, 2 * width)."""
        self.both[:, : both.shape[1]] = both

    def put(self, both: Tensor, position: Tensor) -> None:
        """Write one token's keys and values, (batch, 1, 2 * width), at position, (1,)."""
        self.both.index_copy_(1, position, both)

    def by_head(self, heads: int) -> Tensor:
        """Return keys and values as (2, batch, heads, length, width of a head); nothing is copied."""
        batch, length, _ = self.both.shape
        return self.both.view(batch, length, 2, heads, -1).permute(2, 0, 3, 1, 4)


class SelfAttention(nn.Module):
    """Each token looks at all of them, or in a causal one at those before it."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.merge = nn.Linear(width, width, bias=not causal)

    def forward(self, words: Tensor, cache: KeyValueCache | None = None) -> Tensor:
        """Transform (batch, n, width) to the same shape; keys and values go to the cache too, where there is one."""
        batch, length, width = words.shape
        mixed = self.queries_keys_values(words)
        if cache is not None:
            cache.fill(mixed[:, :, width:])
        queries, keys, values = mixed.view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = scaled_dot_product_attention(queries, keys, values, is_causal=self.causal)
        merged: Tensor = self.merge(seen.transpose(1, 2).reshape(batch, length, width))
        return merged

    def look(self, word: Tensor, cache: KeyValueCache, position: Tensor, visible: Tensor) -> Tensor:
        """Let one token, (batch, width), see the cache; what it sees is not merged yet.

        Args:
            word: What comes in.
            cache: Of this layer; the token's keys and values are put there.
            position: (1,), where it stands.
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
    """Self-attention and a feed-forward part, each normalised before and added to its input.

    The two products that end these parts have no bias in a decoder: `step` lets them add to their input.
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
        """Transform one token, (batch, width), in place; see `SelfAttention.look`."""
        seen = self.attention.look(self.before_attention(word), cache, position, visible)
        word.addmm_(seen, self.attention.merge.weight.t())
        wide, activate, narrow = self.feed_forward
        word.addmm_(activate(wide(self.before_forward(word))), narrow.weight.t())


class Encoder(nn.Module):
    """A BERT-like encoder: word numbers to vectors."""

    VOCABULARY = 30522

    def __init__(self, layers: int, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(self.VOCABULARY, width), nn.Embedding(length, width)
        self.layers = nn.Sequential(*(Layer(width, heads, causal=False) for _ in range(layers)), nn.LayerNorm(width))

    def forward(self, tokens: Tensor) -> Tensor:
        """Encode (batch, length) as (batch, length, width)."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        answer: Tensor = self.layers(self.words(tokens) + self.positions(places))
        return answer


class SequenceClassifier(nn.Module):
    """BERT as it is served most: one class for a whole sequence."""

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
    """BERT as it is trained: it predicts the words at some places."""

    VOCABULARY = Encoder.VOCABULARY

    def __init__(self, layers: int, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.encoder = Encoder(layers, width, heads, length)
        self.predict = nn.Linear(width, self.VOCABULARY)

    def forward(self, tokens: Tensor, places: Tensor) -> Tensor:
        """Predict words.

        Args:
            tokens: (batch, length) word numbers.
            places: (batch, n) positions to predict.

        Returns:
            Scores, (batch, n, VOCABULARY).
        """
        seen = self.encoder(tokens)
        chosen = seen.gather(1, places[:, :, None].expand(-1, -1, seen.shape[2]))
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
        """Make room for length tokens of batch sequences in each layer."""
        return nn.ModuleList(KeyValueCache(batch, length, self.width) for _ in self.layers)

    def forward(self, tokens: Tensor) -> Tensor:
        """Predict each next token, as training does: (batch, n) to scores (batch, n, VOCABULARY)."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        words = self.words(tokens) + self.positions(places)
        for layer in self.layers:
            words = layer(words)
        scores: Tensor = self.predict(self.normalise(words))
        return scores

    def prefill(self, tokens: Tensor, caches: nn.ModuleList) -> Tensor:
        """Read a prompt, (batch, n), into the caches; return the next token's scores, (batch, VOCABULARY)."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        words = self.words(tokens) + self.positions(places)
        for layer, cache in zip(self.layers, caches, strict=True):
            words = layer(words, cache)
        scores: Tensor = self.predict(self.normalise(words[:, -1]))
        return scores

    def decode(self, token: Tensor, position: Tensor, visible: Tensor, caches: nn.ModuleList) -> Tensor:
        """Read one token, (batch,), that stands at position, (1,); return the next one's scores, (batch, ...)."""
        word = self.words(token) + self.positions(position)
        for layer, cache in zip(self.layers, caches, strict=True):
            layer.step(word, cache, position, visible)
        scores: Tensor = self.predict(self.normalise(word))
        return scores


class Prefill(nn.Module):
    """A prompt in, its first token out."""

    def __init__(self, decoder: Decoder, batch: int, length: int) -> None:
        super().__init__()
        self.decoder, self.caches = decoder, decoder.caches(batch, length)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the token after (batch, length): (batch, 1)."""
        sampled: Tensor = self.decoder.prefill(tokens, self.caches).argmax(-1, keepdim=True)
        return sampled


class OneToken(nn.Module):
    """One step of generation. All that it reads and changes stays in its buffers, so a step takes no argument."""

    token: Tensor
    position: Tensor
    visible: Tensor

    def __init__(self, decoder: Decoder, batch: int, prompt: int, room: int) -> None:
        """Prepare for generation.

        Args:
            decoder: The network.
            batch: Sequences generated together.
            prompt: Tokens that are in the caches already.
            room: Tokens that fit into them, the prompt included; `rewind` has to be called before there are more.
        """
        super().__init__()
        self.decoder, self.prompt = decoder, prompt
        self.caches = decoder.caches(batch, room)
        self.register_buffer("token", torch.zeros(batch, 1, dtype=torch.long))
        self.register_buffer("position", torch.full((1,), prompt, dtype=torch.long))
        self.register_buffer("visible", torch.zeros(1, 1, 1, room))
        self.rewind()

    def rewind(self) -> None:
        """Begin again after the prompt."""
        self.position.fill_(self.prompt)
        self.visible[..., self.prompt :].fill_(-math.inf)

    def forward(self) -> Tensor:
        """Generate one token a sequence: (batch, 1), the same tensor each time."""
        self.visible.index_fill_(3, self.position, 0.0)
        scores = self.decoder.decode(self.token[:, 0], self.position, self.visible, self.caches)
        self.token.copy_(scores.argmax(-1, keepdim=True))
        self.position.add_(1)
        return self.token
