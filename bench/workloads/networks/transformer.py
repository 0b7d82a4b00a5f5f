"""The encoder (BERT) and the decoder (GPT), from one layer.

A decoder's keys and values live in caches of fixed size, and where a token stands is a tensor on the GPU: what one
step of generation does never depends on a number that the CPU knows, so a CUDA graph of one step serves all of them.
"""

# mypy: disable-error-code="import-not-found, misc, no-untyped-call"
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention


class KeyValueCache(nn.Module):
    """Keys and values of one layer, for as many tokens as there is room; starts with random ones."""

    keys: Tensor
    values: Tensor

    def __init__(self, batch: int, heads: int, length: int, width: int) -> None:
        """Args: width is that of one head."""
        super().__init__()
        self.register_buffer("keys", torch.randn(batch, heads, length, width))
        self.register_buffer("values", torch.randn(batch, heads, length, width))

    def fill(self, keys: Tensor, values: Tensor) -> None:
        """Write the first tokens' keys and values, (batch, heads, n, width)."""
        self.keys[:, :, : keys.shape[2]] = keys
        self.values[:, :, : values.shape[2]] = values

    def put(self, keys: Tensor, values: Tensor, position: Tensor) -> None:
        """Write one token's keys and values, (batch, heads, 1, width), at position, (1,)."""
        self.keys.index_copy_(2, position, keys)
        self.values.index_copy_(2, position, values)


class SelfAttention(nn.Module):
    """Each token looks at all of them, or in a causal one at those before it."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.merge = nn.Linear(width, width)

    def forward(self, words: Tensor, cache: KeyValueCache | None = None, position: Tensor | None = None) -> Tensor:
        """Transform (batch, n, width) to the same shape.

        Args:
            words: What comes in.
            cache: Where keys and values are kept; None: nowhere.
            position: (1,); words are the one token that stands there, and look at the cache up to it. None: words
                are the first n tokens.
        """
        batch, length, width = words.shape
        split = self.queries_keys_values(words).view(batch, length, 3, self.heads, -1)
        queries, keys, values = split.permute(2, 0, 3, 1, 4)
        if cache is not None and position is not None:
            cache.put(keys, values, position)
            places = torch.arange(cache.keys.shape[2], device=words.device)
            visible = (places <= position)[None, None, None, :]
            seen = scaled_dot_product_attention(queries, cache.keys, cache.values, attn_mask=visible)
        else:
            if cache is not None:
                cache.fill(keys, values)
            seen = scaled_dot_product_attention(queries, keys, values, is_causal=self.causal)
        merged: Tensor = self.merge(seen.transpose(1, 2).reshape(batch, length, width))
        return merged


class Layer(nn.Module):
    """Self-attention and a feed-forward part, each normalised before and added to its input."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.before_attention, self.before_forward = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = SelfAttention(width, heads, causal)
        self.feed_forward = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, words: Tensor, cache: KeyValueCache | None = None, position: Tensor | None = None) -> Tensor:
        """Transform (batch, n, width) to the same shape; see `SelfAttention`."""
        words = words + self.attention(self.before_attention(words), cache, position)
        answer: Tensor = words + self.feed_forward(self.before_forward(words))
        return answer


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
        self.width, self.heads = width, heads
        self.words, self.positions = nn.Embedding(self.VOCABULARY, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList(Layer(width, heads, causal=True) for _ in range(layers))
        self.normalise = nn.LayerNorm(width)
        self.predict = nn.Linear(width, self.VOCABULARY, bias=False)

    def caches(self, batch: int, length: int) -> nn.ModuleList:
        """Make room for length tokens of batch sequences in each layer."""
        head = self.width // self.heads
        return nn.ModuleList(KeyValueCache(batch, self.heads, length, head) for _ in self.layers)

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

    def decode(self, token: Tensor, position: Tensor, caches: nn.ModuleList) -> Tensor:
        """Read one token, (batch, 1), that stands at position, (1,); return the next one's scores, (batch, ...)."""
        words = self.words(token) + self.positions(position)
        for layer, cache in zip(self.layers, caches, strict=True):
            words = layer(words, cache, position)
        scores: Tensor = self.predict(self.normalise(words[:, -1]))
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

    def rewind(self) -> None:
        """Begin again after the prompt."""
        self.position.fill_(self.prompt)

    def forward(self) -> Tensor:
        """Generate one token a sequence: (batch, 1), the same tensor each time."""
        scores = self.decoder.decode(self.token, self.position, self.caches)
        self.token.copy_(scores.argmax(-1, keepdim=True))
        self.position.add_(1)
        return self.token
