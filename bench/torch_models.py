"""The two networks of the experiments, written here so that no model library has to be there.

Operations are not done in place: torch's backward hooks, which the demo's picture is made with, forbid it.
"""

# mypy: disable-error-code="import-not-found, misc"
from torch import Tensor, arange, nn
from torch.nn.functional import scaled_dot_product_attention


class Bottleneck(nn.Module):
    """Narrow, convolve, widen; added to its input."""

    WIDEN = 4

    def __init__(self, channels: int, width: int, stride: int) -> None:
        """Args: channels come in, 4 * width go out."""
        super().__init__()
        out = width * self.WIDEN
        self.body = nn.Sequential(
            *_convolution(channels, width, 1),
            nn.ReLU(),
            *_convolution(width, width, 3, stride),
            nn.ReLU(),
            *_convolution(width, out, 1),
        )
        same = stride == 1 and channels == out
        self.skip = nn.Identity() if same else nn.Sequential(*_convolution(channels, out, 1, stride))
        self.relu = nn.ReLU()

    def forward(self, images: Tensor) -> Tensor:
        """Return the block's output, (batch, 4 * width, height / stride, width / stride)."""
        answer: Tensor = self.relu(self.body(images) + self.skip(images))
        return answer


class ResNet50(nn.Module):
    """The network of He et al. (2015), stride in the 3x3 convolution."""

    STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [*_convolution(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
        channels = 64
        for width, blocks, stride in self.STAGES:
            for number in range(blocks):
                layers.append(Bottleneck(channels, width, stride if number == 0 else 1))
                channels = width * Bottleneck.WIDEN
        self.layers = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))

    def forward(self, images: Tensor) -> Tensor:
        """Classify images (batch, 3, 224, 224): scores (batch, 1000)."""
        scores: Tensor = self.layers(images)
        return scores


def _convolution(channels: int, out: int, size: int, stride: int = 1) -> tuple[nn.Module, nn.Module]:
    return nn.Conv2d(channels, out, size, stride, size // 2, bias=False), nn.BatchNorm2d(out)


class EncoderLayer(nn.Module):
    """Self-attention and a feed-forward part, each normalised before and added to its input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_forward = nn.LayerNorm(width), nn.LayerNorm(width)
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.merge = nn.Linear(width, width)
        self.feed_forward = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, words: Tensor) -> Tensor:
        """Transform (batch, length, width) to the same shape."""
        batch, length, width = words.shape
        split = self.queries_keys_values(self.before_attention(words)).view(batch, length, 3, self.heads, -1)
        queries, keys, values = split.permute(2, 0, 3, 1, 4)
        seen = scaled_dot_product_attention(queries, keys, values).transpose(1, 2).reshape(batch, length, width)
        words = words + self.merge(seen)
        answer: Tensor = words + self.feed_forward(self.before_forward(words))
        return answer


class MaskedLanguageModel(nn.Module):
    """A BERT-like encoder that predicts the words at some places."""

    VOCABULARY = 30522

    def __init__(self, layers: int = 12, width: int = 1024, heads: int = 16, length: int = 512) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(self.VOCABULARY, width), nn.Embedding(length, width)
        self.encoder = nn.Sequential(*(EncoderLayer(width, heads) for _ in range(layers)), nn.LayerNorm(width))
        self.predict = nn.Linear(width, self.VOCABULARY)

    def forward(self, tokens: Tensor, places: Tensor) -> Tensor:
        """Predict words.

        Args:
            tokens: (batch, length) word numbers.
            places: (batch, n) positions to predict.

        Returns:
            Scores, (batch, n, VOCABULARY).
        """
        seen = self.encoder(self.words(tokens) + self.positions(arange(tokens.shape[1], device=tokens.device)))
        chosen = seen.gather(1, places[:, :, None].expand(-1, -1, seen.shape[2]))
        scores: Tensor = self.predict(chosen)
        return scores
